package house

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Create creates a house owned by an agent, with its primary thread, a default environment and the bot @arbe, in one
// transaction, so that no house is without them.
func (h *Houses) Create(ctx context.Context, owner, name string) (made House, err error) {
	if name, err = entry.RequiredName("name", name, MaxName); err != nil {
		return House{}, err
	}
	// The id exists before the transaction, because the transaction's scope names the house.
	var id string
	if id, err = h.q.NewID(ctx, h.db.Pool()); err != nil {
		return House{}, db.Explain(err)
	}
	scope := db.Scope{House: id, Agent: owner}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := h.mayCreateTx(ctx, tx, owner); err != nil {
			return err
		}
		if err := h.q.InsertHouse(ctx, tx, id, name); err != nil {
			return err
		}
		if err := h.q.InsertMember(ctx, tx, id, owner, Owner); err != nil {
			return err
		}
		if err := h.furnishTx(ctx, tx, scope, name); err != nil {
			return err
		}
		if err := h.bots.CreateDefaultsTx(ctx, tx, scope); err != nil {
			return err
		}
		made, err = h.get(ctx, tx, id)
		return err
	})
	return made, err
}

// furnishTx gives a new house its default environment and its primary thread.
func (h *Houses) furnishTx(ctx context.Context, tx pgx.Tx, scope db.Scope, name string) error {
	env, err := h.environments.CreateEnvironmentTx(ctx, tx, scope, "default", sandbox.Recipe{Driver: sandbox.DefaultDriver})
	if err != nil {
		return err
	}
	primary, err := h.threads.CreateTx(ctx, tx, scope, thread.Draft{Name: name, Pinned: true})
	if err != nil {
		return err
	}
	// The house's references are set last, because the referenced rows themselves refer to the house.
	if err := h.q.SetHousePointers(ctx, tx, &env.ID, &primary.ID, scope.House); err != nil {
		return err
	}
	_, err = h.log.AppendTx(ctx, tx, primary.Stream(), entry.NewDraft("", "", entry.HouseCreated{HouseID: scope.House, Name: name}))
	return err
}

// mayCreateTx returns a [fault.Forbidden] or a [fault.Exhausted] if an agent may not create a house. Everyone may
// create the first one. Operators may create any number.
func (h *Houses) mayCreateTx(ctx context.Context, tx pgx.Tx, agent string) error {
	if err := h.q.LockHousesOf(ctx, tx, agent); err != nil {
		return err
	}
	s, err := h.q.HouseStanding(ctx, tx, agent)
	switch {
	case err != nil, !s.AnyHouse, s.Operator:
		return err
	case h.Creation == Operators:
		return fault.New(fault.Forbidden, "only operators may create houses here", "ask an owner of this installation's first house to create it; the setting is house_creation")
	case h.Creation == Members && !s.Member:
		return fault.New(fault.Forbidden, "only members of a house may create houses here", "ask somebody for an invite, or an operator to change the setting house_creation")
	case h.PerPerson > 0 && int(s.Owned) >= h.PerPerson:
		return fault.Newf(fault.Exhausted, "make another person the owner of one, or ask an operator to raise the setting houses_per_person",
			"%d houses belong to you, the most allowed", s.Owned).WithReason(fault.LimitReached)
	}
	return nil
}
