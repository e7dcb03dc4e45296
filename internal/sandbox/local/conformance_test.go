//go:build linux

package local_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	d := newDriver(t, local.Config{Dir: t.TempDir(), Limits: sandbox.Limits{DiskMB: 96}})
	sandboxtest.Run(t, true, func(*testing.T) sandbox.Driver { return d })
}
