package arbe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The pace of a tail's attempts. A server says something at least every 15 seconds, so a connection
// that is silent for much longer is dead although nobody closed it.
const (
	defaultSilence  = 40 * time.Second
	defaultMinDelay = 100 * time.Millisecond
	defaultMaxDelay = 5 * time.Second
)

// TailOption changes how [Client.Tail] behaves.
type TailOption interface{ applyTail(*tail) }

type tailOption func(*tail)

func (o tailOption) applyTail(t *tail) { o(t) }

// OnDisconnect makes the tail call lost each time its connection ended and another will be tried after
// wait, so that a program can show it. The error says why; it is never nil. It is called by the
// goroutine that ranges over the tail.
func OnDisconnect(lost func(err error, wait time.Duration)) TailOption {
	return tailOption(func(t *tail) { t.lost = lost })
}

// WithSilence sets after how much silence a connection is taken for dead. Defaults to 40 seconds; less
// than the 15 seconds in which a server says that it is alive makes healthy connections end.
func WithSilence(d time.Duration) TailOption {
	return tailOption(func(t *tail) { t.silence = d })
}

// Tail replays a thread's log behind the position after (0 is the log's start) and then follows it:
// every entry exactly once, in order, however often connections are cut and servers restart in between.
// It connects again by itself, from the position it reached, with a growing delay of at most five
// seconds.
//
// Besides entries it yields deltas, which are previews and may be missed or repeated around a
// reconnect (their offset tells), and caught_up, once per connection. It does not yield the server's
// signs of life.
//
// It ends when the loop is left, or with an error as its last element: the context's, or one that
// connecting again cannot heal (the credential is not accepted, the thread is not there or was deleted,
// the position is past the log's end).
func (c *Client) Tail(ctx context.Context, threadID string, after int64, opts ...TailOption) iter.Seq2[*arbev1.TailResponse, error] {
	return func(yield func(*arbev1.TailResponse, error) bool) {
		t := tail{
			client: c, thread: threadID, position: after,
			silence: defaultSilence, lost: func(error, time.Duration) {},
			yield: yield,
		}
		for _, o := range opts {
			o.applyTail(&t)
		}
		t.run(ctx)
	}
}

// tail is one range over a log, across its connections.
type tail struct {
	client   *Client
	thread   string
	position int64
	silence  time.Duration
	lost     func(error, time.Duration)
	yield    func(*arbev1.TailResponse, error) bool
}

// errLeft says that the loop over the tail was left; it never reaches a caller.
var errLeft = errors.New("the loop was left")

// run connects until the caller has left or nothing can be healed.
func (t *tail) run(ctx context.Context) {
	delay := defaultMinDelay
	for {
		heard, err := t.connection(ctx)
		switch {
		case err == errLeft:
			return
		case ctx.Err() != nil:
			t.yield(nil, ctx.Err())
			return
		case hopeless(err):
			t.yield(nil, err)
			return
		}
		if heard {
			delay = defaultMinDelay
		}
		// Half of it is chance, so that the tails of a restarted server do not come all at once.
		wait := delay/2 + rand.N(delay/2)
		delay = min(2*delay, defaultMaxDelay)
		t.lost(err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// connection yields what one connection delivers, and returns why it ended (never nil) and whether
// anything was heard on it.
func (t *tail) connection(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The watch runs while we wait for the server, not while the caller thinks about what came.
	watch := time.AfterFunc(t.silence, func() {
		cancel(fmt.Errorf("the server said nothing for %s", t.silence))
	})
	defer watch.Stop()

	stream, err := t.client.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: t.thread, After: t.position})
	if err != nil {
		return false, because(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		watch.Stop()
		heard = true
		if err := t.deliver(stream.Msg()); err != nil {
			return heard, err
		}
		watch.Reset(t.silence)
	}
	if err := stream.Err(); err != nil {
		return heard, because(ctx, err)
	}
	return heard, errors.New("the server ended the connection")
}

// because prefers the reason for which we gave a connection up over the error that this led to.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// deliver yields one event, moving the position with each entry. Positions have no gap, so an entry
// that is not the next one proves the connection wrong: one that was seen before is dropped, one that
// came too early ends the connection, and the next asks for what is missing.
func (t *tail) deliver(event *arbev1.TailResponse) error {
	switch e := event.GetEvent().(type) {
	case *arbev1.TailResponse_Alive:
		return nil
	case *arbev1.TailResponse_Entry:
		if e.Entry.GetSeq() <= t.position {
			return nil
		}
		if e.Entry.GetSeq() != t.position+1 {
			return fmt.Errorf("entry %d came after entry %d", e.Entry.GetSeq(), t.position)
		}
		t.position++
	}
	if !t.yield(event, nil) {
		return errLeft
	}
	return nil
}

// hopeless says whether connecting again cannot heal an error. Only the server's own word counts for
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
