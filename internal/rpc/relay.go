package rpc

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
)

// relay sends what a sequence tells until it ends or ctx does, and alive whenever it was silent for a while. The
// sequence runs beside the call, so that silence can be filled, and ends with ctx, which the caller ends. It holds one event at a time: who
// reads slowly is waited for by nobody else.
func relay[Event, Message any](ctx context.Context, events iter.Seq2[Event, error], wire func(Event) *Message,
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
			if err == nil { // it heard of the end of ctx first
				err = auth.Refused(ctx)
			}
			return err
		case event := <-next:
			message = wire(event)
		case <-silence.C:
		}
		if err := send(message); err != nil {
			return err
		}
		silence.Reset(aliveEvery)
	}
}
