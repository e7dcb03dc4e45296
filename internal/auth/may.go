package auth

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Action is what someone wants to do to a target.
type Action int

// The actions. The house is the only privacy boundary between people, so its members may read and write
// all of it; what changes the house itself is its owners'.
const (
	// Read: see it.
	Read Action = iota
	// Write: say something in it, run something on it, change or delete it.
	Write
	// Own: change who and what the house is.
	Own
)

// Target is what an action is done to: [House], [Thread], [Environment] or [Sandbox].
type Target struct{ kind, id string }

// House is the house with this id.
func House(id string) Target { return Target{"house", id} }

// Thread is the thread with this id.
func Thread(id string) Target { return Target{"thread", id} }

// Environment is the environment with this id.
func Environment(id string) Target { return Target{"environment", id} }

// Sandbox is the sandbox with this id.
func Sandbox(id string) Target { return Target{"sandbox", id} }

// May tells whether the context's principal may do action to target, and returns the scope to do it in.
// A target that is not there, or is in a house that the principal is not in, is the same [fault.NotFound];
// a member who would have to be an owner gets a [fault.Forbidden].
func (a *Auth) May(ctx context.Context, action Action, target Target) (db.Scope, error) {
	p, err := Who(ctx)
	if err != nil {
		return db.Scope{}, err
	}
	place, err := a.q.PlaceOf(ctx, a.db.Pool(), target.kind, target.id, p.Agent)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && p.House != "" && p.House != place.HouseID:
		return db.Scope{}, missing(target)
	case err != nil:
		return db.Scope{}, db.Explain(err)
	case action == Own && place.Role != "owner":
		return db.Scope{}, fault.New(fault.Forbidden, "only an owner of the house may do this", "ask an owner; arbe house list shows your role")
	}
	return db.Scope{House: place.HouseID, Agent: p.Agent}, nil
}

// missing is one answer for what is not there and for what is someone else's.
func missing(t Target) error {
	next := map[string]string{
		"house":       "list your houses with: arbe house list",
		"thread":      "list the threads with: arbe thread list",
		"environment": "list the house's environments, or leave it out to use the default",
		"sandbox":     "see the thread's sandbox with: arbe thread show",
	}[t.kind]
	id := t.id
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fault.Newf(fault.NotFound, next, "there is no %s %q", t.kind, id)
}
