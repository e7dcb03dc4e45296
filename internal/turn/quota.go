package turn

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
)

// This file limits the work that follows from one entry of a person, and the cost of the installation's models.
//
// Bots wake each other: a bot answers, says something in another thread, or creates a thread and says something there,
// and other bots answer that. All of it follows from one entry of a person, its root. Each turn records its root. A
// bot's chat names its turn, so the root passes from turn to turn, across threads. Turns and threads are counted by
// root, and a root's cost is the sum of its turns' calls. The work that one entry starts is therefore limited, however
// bots arrange it: in depth (package policy counts the turns in a row that led to a turn), in breadth, in time and in
// money. A person who wants more says so, which is a new root.

// Root counts the work that has followed from an entry of a person.
type Root struct {
	limits RootLimits
	turns  int
	since  time.Time
}

// RootTx returns the counts of a root, and locks the root until tx ends. To avoid deadlocks, a caller with several
// roots requests them in alphabetical order, before tx locks anything else.
func RootTx(ctx context.Context, tx pgx.Tx, house, root string, l RootLimits) (*Root, error) {
	if err := queries.LockRoot(ctx, tx, house, root); err != nil {
		return nil, err
	}
	row, err := queries.RootTurns(ctx, tx, house, root)
	return &Root{l.WithDefaults(), int(row.Turns), row.Since}, err
}

// NewRoot returns a root without any work.
func NewRoot(l RootLimits) *Root { return &Root{limits: l.WithDefaults(), since: time.Now()} }

// Begin counts another turn, or returns why none may begin, as a sentence that says how to continue.
func (r *Root) Begin() (refused string) {
	switch {
	case r.turns >= r.limits.Turns:
		return fmt.Sprintf("%d turns of bots have followed from one message of a person, and no more may. Say what to do next: that is a new message.", r.turns)
	case time.Since(r.since) > r.limits.Time:
		return fmt.Sprintf("The message of a person from which this follows is older than %s. Say what to do next: that is a new message.", r.limits.Time)
	}
	r.turns++
	return ""
}

// Waiting is how many turns wait to begin: in a thread, in its house, and in all houses of the person to whom the house
// belongs.
type Waiting struct{ Thread, House, Person int }

// WaitingTx counts the turns that wait, each up to most.
func WaitingTx(ctx context.Context, tx pgx.Tx, house, thread string, most int) (Waiting, error) {
	row, err := queries.WaitingTurns(ctx, tx, house, thread, int32(most))
	return Waiting{int(row.OfThread), int(row.OfHouse), int(row.OfPerson)}, err
}

// stream is [model.Client.Stream] within the budget of the installation. Before a call, it reserves the expected cost,
// so that simultaneous calls cannot all spend the same money. If less is left, the call does not begin. The limits are
// therefore exceeded at most by the cost of calls in progress beyond their reservations, which cover the input and
// [expectedOutput] tokens.
func (r *run) stream(ctx context.Context, id string, request model.Request, f func(model.Delta)) (model.Answer, error) {
	if r.Budget.Bounds(r.endpoint) {
		if err := r.reserve(ctx, r.Budget.Expected(r.endpoint, id, request.Estimate())); err != nil {
			return model.Answer{}, err
		}
	}
	return r.show(ctx, id, request, f)
}

func (r *run) reserve(ctx context.Context, micros int64) error {
	installation, person := r.Budget.Most()
	var reached string
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		// If the database crashes, the reservation is lost together with the call's record.
		if _, err = tx.Exec(ctx, "set local synchronous_commit = off"); err == nil {
			reached, err = queries.ReserveCall(ctx, tx, query.ReserveCallParams{
				TurnID: r.turn.ID, Micros: micros, Installation: installation, Person: person,
			})
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.Budget.Lacks(reached)
}

// ended returns the entry that ends a turn at a limit.
func (m meter) ended() entry.TurnEnded {
	return entry.TurnEnded{Reason: m.name, Message: m.words, Next: m.next}
}
