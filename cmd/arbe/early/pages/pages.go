// Package pages has the kernel give the program's first memory in large pages. Import it for its effect.
//
// The initialisation of arbe's packages writes to 7 MB, and without this each 4 KB of it interrupts the program once. That is
// a tenth of the time of a short verb. Many kernels give large pages only where a program asks for them, and Go's runtime
// does not ask.
//
// Go initialises ready packages in the order of their import paths. This package imports only what the runtime itself needs, so
// that it comes before almost all others. It must never import anything else.
package pages
