// Package early makes the garbage collector wait while the program starts. Import it for its effect.
//
// The initialisation of arbe's packages allocates 7 MB and keeps most of it. At Go's default, the collector would mark that
// heap at 4 MB and again at each growth, which takes a third of the time of a short verb. Go initialises ready packages in
// the order of their import paths (Go specification, "Package initialization"). This package imports only the standard
// library and [pages], so it comes before most of the others. It must never import anything else.
package early

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/arbe-dev/arbe/cmd/arbe/early/pages"
)

const (
	// percent lets the heap grow to 32 MB (the minimum of 4 MB times percent/100) before the first collection.
	percent = 800
	// start is the longest time that a start takes. Most verbs end within it, and a server then collects as usual.
	start = time.Second
)

func init() {
	pages.Ask() // half of the heap is mapped by now
	if os.Getenv("GOGC") != "" {
		return // the operator has decided
	}
	usual := debug.SetGCPercent(percent)
	time.AfterFunc(start, func() { debug.SetGCPercent(usual) })
}
