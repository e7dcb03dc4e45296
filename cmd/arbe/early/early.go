// Package early makes the start of the program cheap. Import it for its effect.
//
// Most of the work is in package first, which is initialised before almost all others. This package is initialised after about
// half of them. It must never import anything but the standard library and first.
package early

import (
	"runtime/debug"
	"time"

	"github.com/arbe-dev/arbe/cmd/arbe/early/first"
)

const (
	// start is the longest time that a start takes. Most verbs end within it, and a server then collects as usual.
	start = time.Second
	// usual is Go's default for GOGC.
	usual = 100
)

func init() {
	first.Ask() // half of the heap is mapped by now
	if first.Delayed {
		time.AfterFunc(start, func() { debug.SetGCPercent(usual) })
	}
}
