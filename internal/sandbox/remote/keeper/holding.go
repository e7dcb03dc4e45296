//go:build linux

package main

import (
	"path/filepath"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// holdings is where the guards record the names of the files that their commands hold. There are no values.
const holdings = protocol.Root + "/held"

func holdingOf(id string) string { return filepath.Join(holdings, filepath.Base(id)) }
