//go:build linux

package local

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:generate go run ../build supervisor/pid1 ./supervisor/pid1

// supervisorProgram is the program of process 1 in a supervised box: package supervisor/pid1, built for this processor.
//
// The packed program is committed, so that go build needs no generator and no second build. The server's own program,
// started under another name, would be too large for a process in every box (12 MB of its own memory and 22 ms to
// start, against less than 1 MB and 1 ms). sandbox/build keeps it current.
var supervisorProgram = sync.OnceValue(func() []byte {
	unpacker, err := zstd.NewReader(nil)
	if err != nil {
		return nil
	}
	defer unpacker.Close()
	program, err := unpacker.DecodeAll(packedSupervisor, nil)
	if err != nil || len(program) == 0 {
		return nil // not supported on this processor
	}
	return program
})
