package main

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// follow tails a thread after a position. It tells the person when the connection is lost, and when it is back.
func (a *app) follow(ctx context.Context, c *arbe.Client, thread string, after int64) iter.Seq2[*arbev1.TailResponse, error] {
	return func(yield func(*arbev1.TailResponse, error) bool) {
		n := &connectionNotices{say: a.say}
		for event, err := range c.Tail(ctx, thread, after, n.onLost()) {
			if err == nil {
				n.heard()
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// connectionNotices tell the person when the connection of a tail is lost, and when it is back.
type connectionNotices struct {
	say  func(format string, args ...any)
	lost bool
}

func (n *connectionNotices) onLost() arbe.TailOption {
	return arbe.OnDisconnect(func(error, time.Duration) {
		if !n.lost {
			n.say("the connection to the server is lost; trying again")
		}
		n.lost = true
	})
}

// heard records that something was received on the tail.
func (n *connectionNotices) heard() {
	if n.lost {
		n.say("connected again")
	}
	n.lost = false
}
