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

// ErrFenced is the cause of a [fault.Aborted]: the wake of the request has ended.
var ErrFenced = errors.New("the wake has ended")

// HeldError is the cause of a [fault.Aborted]: another worker holds the wake.
type HeldError struct {
	Holder     string
	Generation int64
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("worker %s holds wake %d", e.Holder, e.Generation)
}

// Wake is a wake with its holder's token.
type Wake struct {
	ID         string
	Generation int64
	// Token authenticates the holder's acknowledgements, because a worker may have no credential of the house.
	Token   string
	Streams []Link
	LeaseMS int64
}

// Claim gives the wake of a pull-wake subscription to a worker until the lease ends. Errors: [fault.NotFound],
// [fault.Aborted] with a [HeldError] as its cause, and [fault.Precondition] if there is nothing to work on.
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
			return fault.New(fault.Precondition, "a webhook subscription cannot be claimed", "create a pull-wake subscription instead")
		case row.Held:
			return fault.Newf(fault.Aborted, "wait for the next wake", "worker %s holds the wake", row.Holder).Because(&HeldError{row.Holder, row.Generation})
		}
		sub, err := show(ctx, tx, name, row)
		if err != nil {
			return err
		}
		if !pending(sub.Streams) {
			return fault.New(fault.Precondition, "there is nothing to work on", "wait for the next wake")
		}
		// The claim delivers a wake that was not delivered yet. If the lease of a wake has ended, a new wake begins, which
		// fences off the last holder.
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

// newWake returns the wake of a row with a new token. The row has only the token's hash, so nobody who reads the database
// can acknowledge in the holder's name.
func newWake(row query.LockSubscriptionRow) Wake {
	return Wake{ID: row.WakeID, Generation: row.Generation, Token: rand.Text() + rand.Text()}
}

// hold gives the wake of a row to a holder.
func hold(ctx context.Context, tx pgx.Tx, row query.LockSubscriptionRow, holder string) (Wake, error) {
	w := newWake(row)
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

// Ack is a holder's report about its wake.
type Ack struct {
	WakeID     string
	Generation int64
	// Acked are the last positions that were processed, by stream.
	Acked map[string]int64
	// Done releases the wake; otherwise the lease starts again.
	Done bool
}

// Acknowledge records the report of a token's holder. It reports whether there is more to work on when the wake is
// done. The error is a [fault.Aborted] with cause [ErrFenced] if the wake has ended, and a [fault.Invalid] for a
// position past the end of a stream or in a stream that does not belong to the subscription.
func (s *Subscriptions) Acknowledge(ctx context.Context, name, token string, a Ack) (more bool, err error) {
	err = s.held(ctx, name, token, a, func(tx pgx.Tx, row query.LockSubscriptionRow) error {
		for stream, seq := range a.Acked {
			n, err := queries.AckStream(ctx, tx, seq, row.ID, stream)
			if err != nil {
				return err
			}
			if n == 0 {
				return fault.Newf(fault.Invalid, "acknowledge only streams and positions that the wake named", "acks: %.100q is not a stream of the subscription, or ends before this position", stream)
			}
		}
		if !a.Done {
			return queries.ExtendWake(ctx, tx, row.ID)
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

// Release releases a wake without any progress.
func (s *Subscriptions) Release(ctx context.Context, name, token string, a Ack) error {
	return s.held(ctx, name, token, a, func(tx pgx.Tx, row query.LockSubscriptionRow) error {
		return queries.EndWake(ctx, tx, row.ID)
	})
}

// held runs f if the token belongs to the current wake. It finds the house by the token, because the request has no
// other credential.
func (s *Subscriptions) held(ctx context.Context, name, token string, a Ack, f func(tx pgx.Tx, row query.LockSubscriptionRow) error) error {
	fenced := fault.New(fault.Aborted, "this wake has ended", "stop working on it: the next wake belongs to another worker").Because(ErrFenced)
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
	s.wakeLoop()
	return err
}
