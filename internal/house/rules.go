package house

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Rules apply to all bots of a house.
type Rules struct {
	Limits Limits
	// Ask names the tools that they use only with a person's approval.
	Ask []string
}

// RulesTx returns the rules of a house, with its effective limits. If the transaction cannot see the house, the error is a
// [fault.NotFound].
func (h *Houses) RulesTx(ctx context.Context, tx pgx.Tx, house string) (Rules, error) {
	row, err := h.q.HouseRules(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) {
		return Rules{}, noSuchHouse()
	} else if err != nil {
		return Rules{}, err
	}
	limits, err := limitsFromRow(house, row.Limits)
	return Rules{limits.Within(h.Maxima), row.Ask}, err
}
