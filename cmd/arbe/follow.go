package main

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// follow is the tail of a thread behind a position, which tells the person when the connection is lost
// and when it is there again.
func (a *app) follow(ctx context.Context, c *arbe.Client, thread string, after int64) iter.Seq2[*arbev1.TailResponse, error] {
	return func(yield func(*arbev1.TailResponse, error) bool) {
		lost := false
		onLost := arbe.OnDisconnect(func(error, time.Duration) {
			if !lost {
				a.say("the connection to the server is lost; trying again")
			}
			lost = true
		})
		for event, err := range c.Tail(ctx, thread, after, onLost) {
			if lost && err == nil {
				a.say("connected again")
				lost = false
			}
			if !yield(event, err) {
				return
			}
		}
	}
}
