package web

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// guarded runs f, and returns its panic as an error. A panic in a goroutine without a guard ends the process. Therefore
// every goroutine of this package starts in this file.
func guarded(f func() error) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // not a defect, because a handler ends its connection with it
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// group runs functions side by side, each guarded. The first error cancels the group's context.
type group struct{ g *errgroup.Group }

func newGroup(ctx context.Context) (group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	return group{g}, ctx
}

// Go starts a function.
func (g group) Go(f func() error) { g.g.Go(func() error { return guarded(f) }) }

// Wait waits for all of them and returns the first error.
func (g group) Wait() error { return g.g.Wait() }

// background runs f guarded in a goroutine of its own, and sends what it returns. The channel has room for that, so
// that the goroutine ends even if nobody receives it.
func background(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- guarded(f) }()
	return ended
}
