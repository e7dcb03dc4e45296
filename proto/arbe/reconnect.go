package arbe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
)

// The pace of attempts to connect. A server says something at least every 20 seconds, so a connection that is silent
// for much longer is dead although nobody closed it.
const (
	defaultSilence  = 40 * time.Second
	defaultMinDelay = 100 * time.Millisecond
	defaultMaxDelay = 5 * time.Second
)

// errLeft says that the loop over a sequence was left; it never reaches a caller.
var errLeft = errors.New("the loop was left")

// reconnects is how a stream that should never end is connected again.
type reconnects struct {
	silence  time.Duration
	lost     func(error, time.Duration)
	hopeless func(error) bool
}

// run connects until the caller has left, which is errLeft, or nothing can be healed, and returns why. A connection
// calls heard when something came, and what that returns when it waits for the server again; it reports whether it
// came further than the one before, and why it ended (never nil).
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
		// That something was heard is not enough: a connection that always ends at the same place also says something.
		if further || time.Since(began) > defaultMaxDelay {
			delay = defaultMinDelay
		}
		// Half of it is chance, so that the clients of a restarted server do not come all at once.
		wait := delay/2 + rand.N(delay/2)
		delay = min(2*delay, defaultMaxDelay)
		r.lost(err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// watched is one connection, ended when the server is silent for too long.
func (r reconnects) watched(ctx context.Context, connection func(context.Context, func() func()) (bool, error)) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The watch runs while we wait for the server, not while the caller thinks about what came.
	watch := time.AfterFunc(r.silence, func() {
		cancel(fmt.Errorf("the server said nothing for %s", r.silence))
	})
	defer watch.Stop()
	further, err := connection(ctx, func() func() {
		watch.Stop()
		return func() { watch.Reset(r.silence) }
	})
	if err != errLeft && ctx.Err() != nil {
		err = context.Cause(ctx) // the reason for which we gave it up, over the error that this led to
	}
	return further, err
}

// receive delivers what a stream brings, and returns why it ended (never nil).
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

// hopeless reports whether connecting again cannot heal an error. Only the server's own word counts for
// what is wrong with the request, because connect gives the same code to an answer that was cut.
func hopeless(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	case connect.CodeNotFound, connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeFailedPrecondition:
		return connect.IsWireError(err)
	}
	return false
}
