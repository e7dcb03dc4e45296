package house

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Creation says who may create houses. An operator, here, is an owner of the installation's first house.
type Creation string

// Who may create houses.
const (
	// Anyone allows everyone who has an account.
	Anyone Creation = "anyone"
	// Members allows everyone who is in a house.
	Members Creation = "members"
	// Operators allows only operators.
	Operators Creation = "operators"
)

// Creations are all values of [Creation].
var Creations = []Creation{Anyone, Members, Operators}

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
		return fault.New(fault.Forbidden, "only operators create houses here", "ask an owner of this installation's first house to create it; the setting is house_creation")
	case h.Creation == Members && !s.Member:
		return fault.New(fault.Forbidden, "only members of a house create houses here", "ask somebody for an invite, or an operator to change the setting house_creation")
	case h.PerPerson > 0 && int(s.Owned) >= h.PerPerson:
		return fault.Newf(fault.Exhausted, "make another person the owner of one, or ask an operator to raise the setting houses_per_person",
			"%d houses belong to you, and no more may", s.Owned).WithReason(fault.LimitReached)
	}
	return nil
}
