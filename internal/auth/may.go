package auth

import (
	"context"
	"errors"
	"slices"

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
	// Say: append to its log.
	Say
	// Write: run something on it, change or delete it.
	Write
	// Own: change who and what the house is.
	Own
	// Issue: make a credential of one's own for it.
	Issue
	// Equip: make a credential for a bot.
	Equip
)

// demands are what an action takes beyond being in the house.
var demands = map[Action]struct {
	// scope lets a token of the thread do it; no token does what has none.
	scope string
	// owner: only an owner of the house may.
	owner bool
	// unlimited: only a credential that is good for all houses does, so that one that leaked cannot make another
	// that outlives it.
	unlimited bool
}{
	Read:  {scope: StreamRead},
	Say:   {scope: StreamWrite},
	Write: {},
	Own:   {owner: true},
	Issue: {unlimited: true},
	Equip: {unlimited: true, owner: true},
}

// Target is what an action is done to: [Account], [House], [Thread], [Environment], [Sandbox] or [Key].
type Target struct{ kind, id string }

// Account is what is the agent's own: their houses, and how they log in. Its scope has the one house that a
// credential is limited to, which may do no more than read about that house; else it has none.
var Account = Target{kind: "account"}

// House is the house with this id.
func House(id string) Target { return Target{"house", id} }

// Thread is the thread with this id.
func Thread(id string) Target { return Target{"thread", id} }

// Environment is the environment with this id.
func Environment(id string) Target { return Target{"environment", id} }

// Sandbox is the sandbox with this id.
func Sandbox(id string) Target { return Target{"sandbox", id} }

// Key is the API key with this id. Its holder owns it.
func Key(id string) Target { return Target{"API key", id} }

// May tells whether the context's principal may do action to target, and returns the scope to do it in.
// A target that is not there, or is in a house that the principal is not in, is the same [fault.NotFound];
// a member who would have to be an owner, and who shows a credential that is too narrow, gets a [fault.Forbidden].
func (a *Auth) May(ctx context.Context, action Action, target Target) (db.Scope, error) {
	p, err := Who(ctx)
	if err != nil {
		return db.Scope{}, err
	}
	at, known := p.place(target)
	if !known {
		row, err := a.q.PlaceOf(ctx, a.db.Pool(), target.kind, target.id, p.Agent)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return db.Scope{}, db.Explain(err)
		}
		at = place{row.HouseID, row.Role}
	}
	if err := p.may(action, target, at); err != nil {
		return db.Scope{}, err
	}
	return db.Scope{House: at.house, Agent: p.Agent}, nil
}

// place is where a target is, and what the principal is there. Without a role there is no such target for
// them.
type place struct{ house, role string }

// place is target's, if it is known without asking the database: a token of a thread can do nothing elsewhere,
// and what it can do there was looked up when it was shown.
func (p Principal) place(target Target) (place, bool) {
	switch {
	case p.Thread != "":
		return place{p.House, p.role}, true
	case target == Account:
		return place{p.House, "owner"}, true
	}
	return place{}, false
}

// may is the whole of what is allowed.
func (p Principal) may(action Action, target Target, at place) error {
	d := demands[action]
	switch {
	case p.Thread != "" && target != Thread(p.Thread):
		return fault.Newf(fault.Forbidden, "use it for that thread only, and another credential for this", "this token is for thread %q alone", p.Thread)
	case p.Thread != "" && d.scope == "":
		return fault.Newf(fault.Forbidden, "use another credential for this", "this token of thread %q is for reading and appending alone", p.Thread)
	case p.Thread != "" && !slices.Contains(p.Scopes, d.scope):
		return fault.Newf(fault.Forbidden, "ask for a token with this scope", "this token of thread %q has no scope %s", p.Thread, d.scope)
	case at.role == "", p.House != "" && p.House != at.house:
		return missing(target)
	case p.House != "" && (d.unlimited || target == Account && action != Read):
		return fault.New(fault.Forbidden, "this credential is limited to one house", "use one that is good for all your houses")
	case d.owner && at.role != "owner":
		return fault.New(fault.Forbidden, "only an owner of the house may do this", "ask an owner; arbe house list shows your role")
	}
	return nil
}

// missing is one answer for what is not there and for what is someone else's.
func missing(t Target) error {
	next := map[string]string{
		"house":       "list your houses with: arbe house list",
		"thread":      "list the threads with: arbe thread list",
		"environment": "list the house's environments, or leave it out to use the default",
		"sandbox":     "see the thread's sandbox with: arbe thread show",
		"API key":     "list the house's keys with: arbe key list",
	}[t.kind]
	id := t.id
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fault.Newf(fault.NotFound, next, "there is no %s %q", t.kind, id)
}
