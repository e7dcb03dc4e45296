package arbe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// sameGap is how many connections in a row must leave out the same entries before the tail takes them for lost. With fewer,
// a connection may be at fault instead of the log.
const sameGap = 6

// GapError is the error with which a tail ends when the log itself has a gap: several connections in a row
// delivered entry Found although entry Position+1 comes next. A new tail after Found-1 skips the gap.
type GapError struct {
	// Position is the last entry before the gap, and Found the first one after it.
	Position, Found int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("entry %d came after entry %d", e.Found, e.Position)
}

// TailOption changes how [Client.Tail] behaves.
type TailOption interface{ applyTail(*tail) }

type tailOption func(*tail)

func (o tailOption) applyTail(t *tail) { o(t) }

// OnDisconnect makes the tail call lost each time its connection has ended and it will try another one after wait, so that
// a program can show it. The error says why the connection ended; it is never nil. The goroutine that ranges over the tail
// calls lost.
func OnDisconnect(lost func(err error, wait time.Duration)) TailOption {
	return tailOption(func(t *tail) { t.lost = lost })
}

// WithTyped makes the tail ask for typed entries: besides its JSON, each entry has its payload as a message of its type, if
// the server knows the type.
func WithTyped() TailOption { return tailOption(func(t *tail) { t.typed = true }) }

// WithSilence sets how long a connection may be silent before it counts as dead. Defaults to 40 seconds. It must be at least
// 20 seconds, because a server without news sends a sign of life only that often.
func WithSilence(d time.Duration) TailOption {
	return tailOption(func(t *tail) { t.silence = d })
}

// Tail replays a thread's log after a position (0 is the log's start) and then follows it: it yields
// every entry exactly once, in order, however often connections are cut and servers restart in between.
// It reconnects from the position that it has reached. The pauses between attempts that make no progress
// grow up to five seconds; [OnDisconnect] reports each attempt.
//
// Besides entries it yields deltas, which are previews and may be missed or repeated around a
// reconnect (their offsets show it), and caught_up, once per connection. It does not yield the server's
// signs of life.
//
// It ends when the loop is left, or with an error as its last element: the context's error, an error that
// reconnecting cannot fix, or a [*GapError]. Reconnecting cannot help if the credential is not accepted, if the
// thread does not exist or was deleted, or if the position is past the log's end. The last also happens after a
// restore that lost the last entries.
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
	// gap is the gap at which the last connections ended, and gaps the number of consecutive connections that ended there.
	gap     GapError
	gaps    int
	typed   bool
	silence time.Duration
	lost    func(error, time.Duration)
	yield   func(*arbev1.TailResponse, error) bool
}

// run connects until the caller leaves the loop or reconnecting cannot help.
func (t *tail) run(ctx context.Context) {
	r := reconnects{silence: t.silence, lost: t.lost, hopeless: func(err error) bool { return hopeless(err) || t.lostForGood(err) }}
	err := r.run(ctx, func(ctx context.Context, heard func() (done func())) (further bool, err error) {
		before := t.position
		err = t.connection(ctx, heard)
		return t.position > before, err
	})
	if err != errLeft {
		t.yield(nil, err)
	}
}

// lostForGood reports whether enough connections in a row have ended at the same gap.
func (t *tail) lostForGood(err error) bool {
	var gap *GapError
	switch {
	case !errors.As(err, &gap):
		return false // keep the count, because this error says nothing about the gap
	case *gap != t.gap:
		t.gap, t.gaps = *gap, 0
	}
	t.gaps++
	return t.gaps == sameGap
}

// connection yields the events of one connection, and returns why the connection ended (never nil).
func (t *tail) connection(ctx context.Context, heard func() (done func())) error {
	stream, err := t.client.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: t.thread, After: t.position, Typed: t.typed})
	return receive(stream, err, heard, t.deliver)
}

// deliver yields one event and moves the position with each entry. Positions have no gap, so an entry that is not the
// next one shows an error of the connection. If the entry was already yielded, deliver drops it. If it came too early,
// deliver ends the connection, so that the next connection asks for the missing entries.
func (t *tail) deliver(event *arbev1.TailResponse) error {
	switch e := event.GetEvent().(type) {
	case *arbev1.TailResponse_Alive:
		return nil
	case *arbev1.TailResponse_Entry:
		if e.Entry.GetSeq() <= t.position {
			return nil
		}
		if e.Entry.GetSeq() != t.position+1 {
			return &GapError{Position: t.position, Found: e.Entry.GetSeq()}
		}
		t.position++
	}
	if !t.yield(event, nil) {
		return errLeft
	}
	return nil
}
