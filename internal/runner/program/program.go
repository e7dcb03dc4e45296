// Package program has the runner's program, built for each processor, as arbe puts it into sandboxes.
package program

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"sync"
)

// A runner and a server that differ by a version understand each other. Therefore not each change of an entry changes the programs,
// which are large in the repository.
//
//go:generate go run ../../sandbox/build -later internal/entry,internal/fault arbe-runner ../../../cmd/arbe-runner

// The programs are compressed, because each server puts few of them into its sandboxes, and arbe is smaller so.
//
//go:embed arbe-runner_amd64.gz
var amd64 []byte

//go:embed arbe-runner_arm64.gz
var arm64 []byte

// programs unpacks each program once.
var programs = map[string]func() []byte{
	"amd64": sync.OnceValue(func() []byte { return unpack(amd64) }),
	"arm64": sync.OnceValue(func() []byte { return unpack(arm64) }),
}

// Runner returns the program for a processor in Go's names; nil if there is none for it. The caller must not change it.
func Runner(goarch string) []byte {
	if unpacked, ok := programs[goarch]; ok {
		return unpacked()
	}
	return nil
}

func unpack(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(r); err == nil {
			return text
		}
	}
	panic(fmt.Sprintf("program: the embedded runner is damaged: %v", err)) // it is part of this program
}
