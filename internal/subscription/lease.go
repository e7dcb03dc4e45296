package subscription

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// ErrFenced is the cause of a [fault.Aborted]: the wake that a request is about is over.
var ErrFenced = errors.New("the wake is over")

// HeldError is the cause of a [fault.Aborted]: somebody else has the wake.
type HeldError struct {
	Holder     string
	Generation int64
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s has wake %d", e.Holder, e.Generation) }

// Wake is a wake in somebody's hands.
type Wake struct {
	ID         string
	Generation int64
	// Token is what the holder acknowledges with.
	Token   string
	Streams []Link
	LeaseMS int64
}

// Claim gives a worker the wake of a pull-wake subscription until its lease ends. Errors: [fault.NotFound],
// [fault.Aborted] because of a [HeldError], and [fault.Precondition] when there is nothing to work on.
func (s *Subscriptions) Claim(ctx context.Context, house, name, worker string) (w Wake, err error) {
	if worker == "" || len(worker) > maxText {
		return w, fault.New(fault.Invalid, "worker: it is empty or too long", "send the worker's name")
	}
	err = s.in(ctx, house, func(tx pgx.Tx) error {
		row, err := lock(ctx, tx, house, name)
		switch {
		case err != nil:
			return err
		case row.Kind != pullWake:
			return fault.New(fault.Precondition, "a webhook subscription is not claimed", "make it a pull-wake subscription")
		case row.Held:
			return fault.Newf(fault.Aborted, "wait for the next wake", "the worker %s has it", row.Holder).Because(&HeldError{row.Holder, row.Generation})
		}
		sub, err := show(ctx, tx, name, row)
		if err != nil {
			return err
		}
		if !pending(sub.Streams) {
			return fault.New(fault.Precondition, "there is nothing to work on", "wait for the next wake")
		}
		// A wake that nobody has told of yet is told by the claim; one whose lease has ended gets a successor.
		if row.WakeID == "" || row.Holder != "" {
			if err := queries.BeginWake(ctx, tx, row.ID); err != nil {
				return err
			}
			if row, err = lock(ctx, tx, house, name); err != nil {
				return err
			}
		}
		w, err = hold(ctx, tx, row, worker)
		w.Streams, w.LeaseMS = sub.Streams, sub.LeaseMS
		return err
	})
	return w, err
}

// hold gives the wake of a row to a holder, with a new token.
func hold(ctx context.Context, tx pgx.Tx, row query.LockSubscriptionRow, holder string) (Wake, error) {
	w := Wake{ID: row.WakeID, Generation: row.Generation, Token: rand.Text() + rand.Text()}
	return w, queries.HoldWake(ctx, tx, query.HoldWakeParams{ID: row.ID, Generation: row.Generation, Holder: &holder, TokenHash: digest(w.Token)})
}

func digest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func pending(links []Link) bool {
	for _, l := range links {
		if l.Tail > l.Acked {
			return true
		}
	}
	return false
}

// Ack is what a holder says about its wake.
type Ack struct {
	WakeID     string
	Generation int64
	// Acked are the last positions that were worked on, by stream.
	Acked map[string]int64
	// Done gives the wake back; otherwise the lease begins anew.
	Done bool
}

// Acknowledge takes what the holder of a token says, and reports whether there is more to work on after it is
// done. A wake that is over is a [fault.Aborted] because of [ErrFenced]; a position past the end of a stream,
// or in another one, is a [fault.Invalid].
func (s *Subscriptions) Acknowledge(ctx context.Context, name, token string, a Ack) (more bool, err error) {
	err = s.held(ctx, name, token, a, func(tx pgx.Tx, row query.LockSubscriptionRow) error {
		for stream, seq := range a.Acked {
			n, err := queries.AckStream(ctx, tx, seq, row.ID, stream)
			if err != nil {
				return err
			}
			if n == 0 {
				return fault.Newf(fault.Invalid, "acknowledge what the wake named", "acks: %.100q is no stream of the subscription, or ends earlier", stream)
			}
		}
		if !a.Done {
			return queries.ProlongWake(ctx, tx, row.ID)
		}
		left, err := links(ctx, tx, row.ID)
		if err != nil {
			return err
		}
		more = pending(left)
		return queries.EndWake(ctx, tx, row.ID)
	})
	return more, err
}

// Release gives a wake back with nothing done.
func (s *Subscriptions) Release(ctx context.Context, name, token string, a Ack) error {
	return s.held(ctx, name, token, a, func(tx pgx.Tx, row query.LockSubscriptionRow) error {
		return queries.EndWake(ctx, tx, row.ID)
	})
}

// held runs f if the token's wake is the one under way.
func (s *Subscriptions) held(ctx context.Context, name, token string, a Ack, f func(tx pgx.Tx, row query.LockSubscriptionRow) error) error {
	fenced := fault.New(fault.Aborted, "this wake is over", "stop: the next wake is somebody else's").Because(ErrFenced)
	hash := digest(token)
	var house string
	err := s.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		house, err = queries.HouseOfWake(ctx, tx, hash)
		return err
	})
	if err != nil {
		return err
	}
	if house == "" {
		return fenced
	}
	err = s.in(ctx, house, func(tx pgx.Tx) error {
		row, err := lock(ctx, tx, house, name)
		if fault.CodeOf(err) == fault.NotFound {
			return fenced
		}
		if err != nil {
			return err
		}
		if subtle.ConstantTimeCompare(row.TokenHash, hash) != 1 || !row.Held || row.WakeID != a.WakeID || row.Generation != a.Generation {
			return fenced
		}
		return f(tx, row)
	})
	s.look()
	return err
}
