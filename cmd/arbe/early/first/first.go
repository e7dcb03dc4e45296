// Package first prepares the program's memory before almost all other packages are initialised. Import it for its effect.
//
// The initialisation of arbe's packages allocates 7 MB and keeps most of it. By default, the garbage collector would mark that
// heap before it has 4 MB, which takes a quarter of the time of a short verb, and each 4 KB of it would interrupt the program
// once, which takes a tenth. Many kernels give large pages only where a program asks for them, and Go's runtime does not ask.
//
// Go initialises ready packages in the order of their import paths (Go specification, "Package initialization"). This package
// imports only what the runtime itself needs, so it comes before almost all others. It must never import anything else.
package first

import (
	"syscall"
	_ "unsafe" // for go:linkname
)

// percent lets the heap grow to 32 MB (the minimum of 4 MB times percent/100) before the first collection.
const percent = 800

// Delayed reports that the garbage collector waits. It does not if the operator has decided with GOGC.
var Delayed bool

func init() {
	Ask()
	if decided, _ := syscall.Getenv("GOGC"); decided == "" {
		setGCPercent(percent)
		Delayed = true
	}
}

// setGCPercent is what debug.SetGCPercent calls. Package runtime/debug is initialised after so many others that the first
// collection has begun by then. A function without a body needs an assembly file in its package: first.s.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) int32
