package rpc

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
)

// relay sends the events of a sequence until the sequence or ctx ends. Whenever no event came for aliveEvery, it sends
// alive. known returns the time at which this server learned of an event. relay sends the event only if the caller was still
// allowed to see it at that time. The sequence runs in its own goroutine, because otherwise nothing could be sent while it
// waits. The goroutine ends with ctx, so the caller must cancel ctx. relay holds only one event at a time, so a slow client
// takes no more memory than that.
func relay[Event, Message any](ctx context.Context, events iter.Seq2[Event, error], wire func(Event) *Message, known func(Event) time.Time,
	aliveEvery time.Duration, alive *Message, send func(*Message) error) error {
	next, ended := make(chan Event), make(chan error, 1)
	go func() {
		for event, err := range events {
			if err != nil {
				ended <- err
				return
			}
			select {
			case next <- event:
			case <-ctx.Done():
				return
			}
		}
		ended <- nil
	}()
	silence := time.NewTimer(aliveEvery)
	defer silence.Stop()
	for {
		message := alive
		select {
		case <-ctx.Done():
			return auth.Refused(ctx)
		case err := <-ended:
			if err == nil { // the sequence noticed the end of ctx before this loop
				err = auth.Refused(ctx)
			}
			return err
		case event := <-next:
			if err := auth.StillAllowed(ctx, known(event)); err != nil {
				return auth.Refused(ctx) // nil if the caller left
			}
			message = wire(event)
		case <-silence.C:
		}
		if err := send(message); err != nil {
			return err
		}
		silence.Reset(aliveEvery)
	}
}
