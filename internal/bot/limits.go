package bot

import (
	"math"
	"strconv"

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
	// AnswerMinutes is how long the bot waits for a person's answer when it asks for approval.
	AnswerMinutes int `json:"answer_minutes,omitempty"`
}

// DefaultLimits are the limits of a bot for which none are set. DefaultMaxima are the highest that can be set, unless the
// operator sets others.
var (
	DefaultLimits = Limits{TurnSteps: 40, TurnTokens: 1_000_000, TurnUSD: 1, TurnMinutes: 30, ThreadUSDDay: 10, AnswerMinutes: 24 * 60}
	DefaultMaxima = Limits{TurnSteps: 200, TurnTokens: 20_000_000, TurnUSD: 20, TurnMinutes: 240, ThreadUSDDay: 10_000, AnswerMinutes: 7 * 24 * 60}
)

// Within returns the limits, or the maxima where those are lower: a bot may have been set up before they were.
func (l Limits) Within(maxima Limits) Limits {
	return Limits{
		TurnSteps: min(l.TurnSteps, maxima.TurnSteps), TurnTokens: min(l.TurnTokens, maxima.TurnTokens), TurnUSD: min(l.TurnUSD, maxima.TurnUSD),
		TurnMinutes: min(l.TurnMinutes, maxima.TurnMinutes), ThreadUSDDay: min(l.ThreadUSDDay, maxima.ThreadUSDDay),
		AnswerMinutes: min(l.AnswerMinutes, maxima.AnswerMinutes),
	}
}

// OrDefaults returns the limits with the defaults in place of what is not set.
func (l Limits) OrDefaults() Limits {
	return Limits{
		TurnSteps: orDefault(l.TurnSteps, DefaultLimits.TurnSteps), TurnTokens: orDefault(l.TurnTokens, DefaultLimits.TurnTokens),
		TurnUSD: orDefault(l.TurnUSD, DefaultLimits.TurnUSD), TurnMinutes: orDefault(l.TurnMinutes, DefaultLimits.TurnMinutes),
		ThreadUSDDay: orDefault(l.ThreadUSDDay, DefaultLimits.ThreadUSDDay), AnswerMinutes: orDefault(l.AnswerMinutes, DefaultLimits.AnswerMinutes),
	}
}

// OrMaxima returns the limits with [DefaultMaxima] in place of what is not set.
func (l Limits) OrMaxima() Limits {
	return Limits{
		TurnSteps: orDefault(l.TurnSteps, DefaultMaxima.TurnSteps), TurnTokens: orDefault(l.TurnTokens, DefaultMaxima.TurnTokens),
		TurnUSD: orDefault(l.TurnUSD, DefaultMaxima.TurnUSD), TurnMinutes: orDefault(l.TurnMinutes, DefaultMaxima.TurnMinutes),
		ThreadUSDDay: orDefault(l.ThreadUSDDay, DefaultMaxima.ThreadUSDDay), AnswerMinutes: orDefault(l.AnswerMinutes, DefaultMaxima.AnswerMinutes),
	}
}

func orDefault[T int | int64 | float64](set, byDefault T) T {
	if set == 0 {
		return byDefault
	}
	return set
}

func (l Limits) validate(maxima Limits) error {
	for _, f := range []struct {
		field    string
		set, max float64
	}{
		{"turn_steps", float64(l.TurnSteps), float64(maxima.TurnSteps)}, {"turn_tokens", float64(l.TurnTokens), float64(maxima.TurnTokens)},
		{"turn_usd", l.TurnUSD, maxima.TurnUSD}, {"turn_minutes", float64(l.TurnMinutes), float64(maxima.TurnMinutes)},
		{"thread_usd_day", l.ThreadUSDDay, maxima.ThreadUSDDay}, {"answer_minutes", float64(l.AnswerMinutes), float64(maxima.AnswerMinutes)},
	} {
		if math.IsNaN(f.set) || f.set < 0 || f.set > f.max {
			return fault.Newf(fault.Invalid, "give a number in this range, or leave it out for the default; the operator sets the maximum", "limits.%s: it must be from 0 to %s", f.field, strconv.FormatFloat(f.max, 'f', -1, 64))
		}
	}
	return nil
}
