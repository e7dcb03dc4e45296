// Package guard runs the functions of pages so that their panics become errors. A panic in an unguarded goroutine ends the
// process, so every goroutine of the pages starts here.
package guard

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// Run runs f, and returns its panic as an error. [http.ErrAbortHandler] stays a panic.
func Run(f func() error) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // not a defect: handlers end their connection with it
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// Group runs guarded functions concurrently. The first error cancels the group's context.
type Group struct{ g *errgroup.Group }

// NewGroup returns a group, and the context for its functions.
func NewGroup(ctx context.Context) (Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	return Group{g}, ctx
}

// Go starts a function.
func (g Group) Go(f func() error) { g.g.Go(func() error { return Run(f) }) }

// Wait waits for all functions and returns the first error.
func (g Group) Wait() error { return g.g.Wait() }

// Background runs f, guarded, in its own goroutine, and sends the result. The channel is buffered, so that the goroutine ends
// even if nobody receives it.
func Background(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- Run(f) }()
	return ended
}
