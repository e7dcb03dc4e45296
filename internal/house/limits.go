package house

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Limits limit all bots of a house together. A zero field means the default. [bot.Limits] are the limits of one bot.
type Limits struct {
	// USDDay limits their cost per day (UTC), in US dollars.
	USDDay float64 `json:"house_usd_day,omitempty"`
	// MemberUSDDay limits the cost per day of what follows from the messages of one person, in US dollars. 0 means no limit
	// besides USDDay.
	MemberUSDDay float64 `json:"member_usd_day,omitempty"`
}

// DefaultLimits are the limits of a house for which none are set, MaxLimits the highest that can be set.
var (
	DefaultLimits = Limits{USDDay: 50}
	MaxLimits     = Limits{USDDay: 100_000, MemberUSDDay: 100_000}
)

// OrDefaults returns the limits with defaults for the fields that are not set.
func (l Limits) OrDefaults() Limits {
	if l.USDDay == 0 {
		l.USDDay = DefaultLimits.USDDay
	}
	return l
}

func (l Limits) validate() error {
	for _, f := range []struct {
		field    string
		set, max float64
	}{{"house_usd_day", l.USDDay, MaxLimits.USDDay}, {"member_usd_day", l.MemberUSDDay, MaxLimits.MemberUSDDay}} {
		if math.IsNaN(f.set) || f.set < 0 || f.set > f.max {
			return fault.Newf(fault.Invalid, "give an amount in this range, or 0 for the default", "limits.%s: it must be from 0 to %.0f US dollars", f.field, f.max)
		}
	}
	return nil
}

// Rules apply to all bots of a house.
type Rules struct {
	Limits Limits
	// Ask names the tools that they use only with a person's approval.
	Ask []string
}

// RulesTx returns the rules of a house that the transaction sees. Otherwise the error is a [fault.NotFound].
func (h *Houses) RulesTx(ctx context.Context, tx pgx.Tx, house string) (Rules, error) {
	row, err := h.q.HouseRules(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) {
		return Rules{}, noSuchHouse()
	} else if err != nil {
		return Rules{}, err
	}
	limits, err := limitsFromRow(house, row.Limits)
	return Rules{limits, row.Ask}, err
}

func limitsFromRow(house string, row []byte) (l Limits, err error) {
	if err := json.Unmarshal(row, &l); err != nil {
		return l, fmt.Errorf("the limits of house %s: %w", house, err)
	}
	return l, nil
}
