package bot

import (
	"math"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Limits limits what a bot may use. A zero field means the default.
type Limits struct {
	// The limits of one turn: TurnSteps limits its model calls, TurnTokens and TurnUSD their total tokens and cost in US
	// dollars, and TurnMinutes its duration.
	TurnSteps   int     `json:"turn_steps,omitempty"`
	TurnTokens  int64   `json:"turn_tokens,omitempty"`
	TurnUSD     float64 `json:"turn_usd,omitempty"`
	TurnMinutes int     `json:"turn_minutes,omitempty"`
	// The limits of one run of a coding agent: RunUSD limits the cost of its model calls, in US dollars, and RunMinutes how
	// long it may take, including the time that it waits for people.
	RunUSD     float64 `json:"run_usd,omitempty"`
	RunMinutes int     `json:"run_minutes,omitempty"`
	// ThreadUSDDay is the daily cost (UTC) of all bots in a tree of threads, in US dollars, at which this bot stops there.
	ThreadUSDDay float64 `json:"thread_usd_day,omitempty"`
	// AnswerMinutes limits how long the bot waits for a person's answer when it asks for approval.
	AnswerMinutes int `json:"answer_minutes,omitempty"`
}

// DefaultLimits are the limits of a bot that has none set. DefaultMaxima are the highest limits that can be set, unless the
// operator sets others.
var (
	DefaultLimits = Limits{TurnSteps: 40, TurnTokens: 1_000_000, TurnUSD: 1, TurnMinutes: 30, RunUSD: 5, RunMinutes: 24 * 60, ThreadUSDDay: 20, AnswerMinutes: 24 * 60}
	DefaultMaxima = Limits{TurnSteps: 200, TurnTokens: 20_000_000, TurnUSD: 20, TurnMinutes: 240, RunUSD: 100, RunMinutes: 3 * 24 * 60, ThreadUSDDay: 10_000, AnswerMinutes: 7 * 24 * 60}
)

// Within caps the limits at the maxima. The maxima may have been lowered since the bot was set up.
func (l Limits) Within(maxima Limits) Limits {
	return Limits{
		TurnSteps: min(l.TurnSteps, maxima.TurnSteps), TurnTokens: min(l.TurnTokens, maxima.TurnTokens), TurnUSD: min(l.TurnUSD, maxima.TurnUSD),
		TurnMinutes: min(l.TurnMinutes, maxima.TurnMinutes), RunUSD: min(l.RunUSD, maxima.RunUSD), RunMinutes: min(l.RunMinutes, maxima.RunMinutes),
		ThreadUSDDay: min(l.ThreadUSDDay, maxima.ThreadUSDDay), AnswerMinutes: min(l.AnswerMinutes, maxima.AnswerMinutes),
	}
}

// OrDefaults replaces limits that are not set by the defaults.
func (l Limits) OrDefaults() Limits {
	return Limits{
		TurnSteps: orDefault(l.TurnSteps, DefaultLimits.TurnSteps), TurnTokens: orDefault(l.TurnTokens, DefaultLimits.TurnTokens),
		TurnUSD: orDefault(l.TurnUSD, DefaultLimits.TurnUSD), TurnMinutes: orDefault(l.TurnMinutes, DefaultLimits.TurnMinutes),
		RunUSD: orDefault(l.RunUSD, DefaultLimits.RunUSD), RunMinutes: orDefault(l.RunMinutes, DefaultLimits.RunMinutes),
		ThreadUSDDay: orDefault(l.ThreadUSDDay, DefaultLimits.ThreadUSDDay), AnswerMinutes: orDefault(l.AnswerMinutes, DefaultLimits.AnswerMinutes),
	}
}

// OrMaxima replaces limits that are not set by [DefaultMaxima].
func (l Limits) OrMaxima() Limits {
	return Limits{
		TurnSteps: orDefault(l.TurnSteps, DefaultMaxima.TurnSteps), TurnTokens: orDefault(l.TurnTokens, DefaultMaxima.TurnTokens),
		TurnUSD: orDefault(l.TurnUSD, DefaultMaxima.TurnUSD), TurnMinutes: orDefault(l.TurnMinutes, DefaultMaxima.TurnMinutes),
		RunUSD: orDefault(l.RunUSD, DefaultMaxima.RunUSD), RunMinutes: orDefault(l.RunMinutes, DefaultMaxima.RunMinutes),
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
		{"run_usd", l.RunUSD, maxima.RunUSD}, {"run_minutes", float64(l.RunMinutes), float64(maxima.RunMinutes)},
		{"thread_usd_day", l.ThreadUSDDay, maxima.ThreadUSDDay}, {"answer_minutes", float64(l.AnswerMinutes), float64(maxima.AnswerMinutes)},
	} {
		if math.IsNaN(f.set) || f.set < 0 || f.set > f.max {
			return fault.Newf(fault.Invalid, "give a number in this range, or leave it out for the default; the operator sets the maximum", "limits.%s: it must be from 0 to %s", f.field, strconv.FormatFloat(f.max, 'f', -1, 64))
		}
	}
	return nil
}
