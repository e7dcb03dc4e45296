package house

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Limits limit all bots of a house together. A zero field means the default. [bot.Limits] are the limits of one bot.
type Limits struct {
	// USDDay limits their cost per day (UTC), in US dollars.
	USDDay float64 `json:"house_usd_day,omitempty"`
	// MemberUSDDay limits the cost per day of everything that follows from one person's messages, in US dollars. 0 means no
	// limit besides USDDay.
	MemberUSDDay float64 `json:"member_usd_day,omitempty"`
}

// DefaultLimits apply to a house that has set none. DefaultMaxima are the highest that can be set, unless the operator sets
// others.
var (
	DefaultLimits = Limits{USDDay: 50}
	DefaultMaxima = Limits{USDDay: 100_000, MemberUSDDay: 100_000}
)

// MaximaSettings returns the operator's settings for the highest limits of houses.
func MaximaSettings() []setting.Setting[Limits] {
	return []setting.Setting[Limits]{
		setting.Dollars("house_max_usd_day", strconv.FormatFloat(DefaultMaxima.USDDay, 'f', -1, 64), "maximum of a house's limit house_usd_day", func(l *Limits) *float64 { return &l.USDDay }),
		setting.Dollars("member_max_usd_day", strconv.FormatFloat(DefaultMaxima.MemberUSDDay, 'f', -1, 64), "maximum of a house's limit member_usd_day; if it is below the default, it also limits houses that set none", func(l *Limits) *float64 { return &l.MemberUSDDay }),
	}
}

// OrMaxima replaces limits that are not set by [DefaultMaxima].
func (l Limits) OrMaxima() Limits {
	return Limits{USDDay: cmp.Or(l.USDDay, DefaultMaxima.USDDay), MemberUSDDay: cmp.Or(l.MemberUSDDay, DefaultMaxima.MemberUSDDay)}
}

// Within returns the effective limits: the set ones or the defaults, capped at the maxima, which may have been lowered
// since.
func (l Limits) Within(maxima Limits) Limits {
	if l.USDDay == 0 {
		l.USDDay = DefaultLimits.USDDay
	}
	if l.MemberUSDDay == 0 && maxima.MemberUSDDay < DefaultMaxima.MemberUSDDay {
		l.MemberUSDDay = maxima.MemberUSDDay
	}
	return Limits{USDDay: min(l.USDDay, maxima.USDDay), MemberUSDDay: min(l.MemberUSDDay, maxima.MemberUSDDay)}
}

func (l Limits) validate(maxima Limits) error {
	for _, f := range []struct {
		field    string
		set, max float64
	}{{"house_usd_day", l.USDDay, maxima.USDDay}, {"member_usd_day", l.MemberUSDDay, maxima.MemberUSDDay}} {
		if math.IsNaN(f.set) || f.set < 0 || f.set > f.max {
			return fault.Newf(fault.Invalid, "give an amount in this range, or 0 for the default; the operator sets the maximum", "limits.%s: it must be from 0 to %s US dollars", f.field, strconv.FormatFloat(f.max, 'f', -1, 64))
		}
	}
	return nil
}

func limitsFromRow(house string, row []byte) (l Limits, err error) {
	if err := json.Unmarshal(row, &l); err != nil {
		return l, fmt.Errorf("the limits of house %s: %w", house, err)
	}
	return l, nil
}
