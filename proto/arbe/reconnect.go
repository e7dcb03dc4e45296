package arbe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
)

// The pace of attempts to connect. A server sends something at least every 20 seconds. A connection that is silent for twice
// as long is dead, even if nobody has closed it, and must be ended.
const (
	defaultSilence  = 40 * time.Second
	defaultMinDelay = 100 * time.Millisecond
	defaultMaxDelay = 5 * time.Second
)

// errLeft reports that the caller has left the loop over a sequence. It never reaches the caller, because the loop takes no
// more values.
var errLeft = errors.New("the loop was left")

// reconnects says how to reconnect a stream that should never end.
type reconnects struct {
	silence  time.Duration
	lost     func(error, time.Duration)
	hopeless func(error) bool
}

// run connects until the caller leaves the loop, which is errLeft, or until reconnecting cannot help, and returns the reason.
// A connection calls heard when it has received something, and calls the function that heard returns when it waits for the
// server again. It returns whether it got further than the previous connection, and why it ended (never nil).
func (r reconnects) run(ctx context.Context, connection func(_ context.Context, heard func() (done func())) (further bool, err error)) error {
	delay := defaultMinDelay
	for {
		began := time.Now()
		further, err := r.watched(ctx, connection)
		switch {
		case err == errLeft:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case r.hopeless(err):
			return err
		}
		// Receiving something is not enough. A connection that always ends at the same place receives something too, and its
		// retries would never slow down.
		if further || time.Since(began) > defaultMaxDelay {
			delay = defaultMinDelay
		}
		// Half of the wait is random, so that the clients of a restarted server do not all connect at once.
		wait := delay/2 + rand.N(delay/2)
		delay = min(2*delay, defaultMaxDelay)
		r.lost(err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// watched runs one connection, and ends it when the server is silent for too long.
func (r reconnects) watched(ctx context.Context, connection func(context.Context, func() func()) (bool, error)) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The watch stops while the caller handles what was received; otherwise a slow caller would look like a silent
	// server.
	watch := time.AfterFunc(r.silence, func() {
		cancel(fmt.Errorf("the server said nothing for %s", r.silence))
	})
	defer watch.Stop()
	further, err := connection(ctx, func() func() {
		watch.Stop()
		return func() { watch.Reset(r.silence) }
	})
	if err != errLeft && ctx.Err() != nil {
		err = context.Cause(ctx) // the reason for the end, instead of the error that it led to
	}
	return further, err
}

// receive delivers the messages of a stream, and returns why the stream ended (never nil).
func receive[Message any](stream *connect.ServerStreamForClient[Message], err error, heard func() (done func()), deliver func(*Message) error) error {
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		done := heard()
		if err := deliver(stream.Msg()); err != nil {
			return err
		}
		done()
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errors.New("the server ended the connection")
}

// hopeless reports whether reconnecting cannot help after an error. Codes about the request count only in an answer of the
// server, because connect gives the same codes to an answer that was cut off.
func hopeless(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	case connect.CodeNotFound, connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeFailedPrecondition:
		return connect.IsWireError(err)
	}
	return false
}
