package bot

import (
	"math"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Limits are what a bot may use. A zero field means the default.
type Limits struct {
	// TurnSteps is how many calls of the model one turn may make, TurnTokens how many tokens they may use together, TurnUSD
	// what they may cost in US dollars, and TurnMinutes how long the turn may take.
	TurnSteps   int     `json:"turn_steps,omitempty"`
	TurnTokens  int64   `json:"turn_tokens,omitempty"`
	TurnUSD     float64 `json:"turn_usd,omitempty"`
	TurnMinutes int     `json:"turn_minutes,omitempty"`
	// ThreadUSDDay is what the turns of all bots in a thread may cost in a day (UTC) before this bot stops there, in US
	// dollars.
	ThreadUSDDay float64 `json:"thread_usd_day,omitempty"`
}

// DefaultLimits are the limits of a bot for which none are set, MaxLimits the highest that can be set.
var (
	DefaultLimits = Limits{TurnSteps: 40, TurnTokens: 1_000_000, TurnUSD: 1, TurnMinutes: 30, ThreadUSDDay: 10}
	MaxLimits     = Limits{TurnSteps: 1000, TurnTokens: 100_000_000, TurnUSD: 1000, TurnMinutes: 24 * 60, ThreadUSDDay: 10_000}
)

// OrDefaults returns the limits with the defaults in place of what is not set.
func (l Limits) OrDefaults() Limits {
	return Limits{
		TurnSteps: orDefault(l.TurnSteps, DefaultLimits.TurnSteps), TurnTokens: orDefault(l.TurnTokens, DefaultLimits.TurnTokens),
		TurnUSD: orDefault(l.TurnUSD, DefaultLimits.TurnUSD), TurnMinutes: orDefault(l.TurnMinutes, DefaultLimits.TurnMinutes),
		ThreadUSDDay: orDefault(l.ThreadUSDDay, DefaultLimits.ThreadUSDDay),
	}
}

func orDefault[T int | int64 | float64](set, byDefault T) T {
	if set == 0 {
		return byDefault
	}
	return set
}

func (l Limits) validate() error {
	for _, f := range []struct {
		field    string
		set, max float64
	}{
		{"turn_steps", float64(l.TurnSteps), float64(MaxLimits.TurnSteps)}, {"turn_tokens", float64(l.TurnTokens), float64(MaxLimits.TurnTokens)},
		{"turn_usd", l.TurnUSD, MaxLimits.TurnUSD}, {"turn_minutes", float64(l.TurnMinutes), float64(MaxLimits.TurnMinutes)},
		{"thread_usd_day", l.ThreadUSDDay, MaxLimits.ThreadUSDDay},
	} {
		if math.IsNaN(f.set) || f.set < 0 || f.set > f.max {
			return fault.Newf(fault.Invalid, "give a number in this range, or leave it out for the default", "limits.%s: it must be from 0 to %g", f.field, f.max)
		}
	}
	return nil
}
