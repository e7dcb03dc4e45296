// Package early makes the garbage collector wait while the program starts. Import it for its effect.
//
// The initialisation of arbe's packages allocates 7 MB and keeps most of it. At Go's default the collector would mark
// that heap at 4 MB and again at each growth, which is a third of the time that a short verb takes. Go initialises ready
// packages in the order of their import paths (Go specification, "Package initialization"), and this one imports only
// the standard library, so it comes before most of the others. It must not get an import outside the standard library.
package early

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	// percent lets the heap grow to 32 MB (the minimum of 4 MB times percent/100) before the first collection.
	percent = 800
	// start is how long a start lasts at most. Most verbs end within it, and a server collects as usual after it.
	start = time.Second
)

func init() {
	if os.Getenv("GOGC") != "" {
		return // the operator has decided
	}
	usual := debug.SetGCPercent(percent)
	time.AfterFunc(start, func() { debug.SetGCPercent(usual) })
}
