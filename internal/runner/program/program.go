// Package program embeds the runner's program for each processor. arbe uploads it to sandboxes.
package program

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Runners and servers whose versions differ by one understand each other. So not every change of an entry needs new
// programs, which take up much space in the repository.
//
//go:generate go run ../../sandbox/build -small -later internal/entry,internal/fault arbe-runner ../../../cmd/arbe-runner

// The programs are compressed, because a server unpacks few of them, and arbe becomes smaller.
//
//go:embed arbe-runner_amd64.zst
var amd64 []byte

//go:embed arbe-runner_arm64.zst
var arm64 []byte

// programs unpacks each program once.
var programs = map[string]func() []byte{
	"amd64": sync.OnceValue(func() []byte { return unpack(amd64) }),
	"arm64": sync.OnceValue(func() []byte { return unpack(arm64) }),
}

// Runner returns the program for a processor, by its Go name; nil if there is none. The caller must not change it.
func Runner(goarch string) []byte {
	if unpacked, ok := programs[goarch]; ok {
		return unpacked()
	}
	return nil
}

func unpack(packed []byte) []byte {
	r, err := zstd.NewReader(nil)
	if err == nil {
		defer r.Close()
		var text []byte
		if text, err = r.DecodeAll(packed, nil); err == nil {
			return text
		}
	}
	panic(fmt.Sprintf("program: the embedded runner is damaged: %v", err)) // cannot happen: it is embedded in this program
}
