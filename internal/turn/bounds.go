package turn

import (
	"cmp"
	"math/rand/v2"
	"time"

	"fmt"

	"strings"

	"github.com/arbe-dev/arbe/internal/model"
)

// Limits restrict what a bot does. A field that is 0 has its default.
type Limits struct {
	// Steps is how many model calls a turn may make. Defaults to 40.
	Steps int
	// Tokens is how many tokens these calls may read and write, not counting reads from a cache. Defaults to 1,000,000.
	Tokens int64
	// Micros limits the cost of a turn, in millionths of a US dollar. Defaults to 1 dollar.
	Micros int64
	// Time is how long a turn may take, not counting waits for people. Defaults to 30 minutes.
	Time time.Duration
	// Answer is how long a question to people waits for their answer. Defaults to 24 hours.
	Answer time.Duration
	// RunMicros limits the cost of the model calls of one run of a coding agent, in millionths of a dollar. Defaults to 5
	// dollars.
	RunMicros int64
	// ThreadMicros and HouseMicros limit the cost of all turns and runs of the thread's tree and of the house in a day (UTC),
	// in millionths of a dollar. Default to 20 and 50 dollars.
	ThreadMicros, HouseMicros int64
	// MemberMicros limits the daily cost, in the house, of everything that follows from one person's messages; 0 means no
	// limit.
	MemberMicros int64
}

func (l Limits) withDefaults() Limits {
	if l.Steps == 0 {
		l.Steps = 40
	}
	if l.Time == 0 {
		l.Time = 30 * time.Minute
	}
	if l.Answer == 0 {
		l.Answer = 24 * time.Hour
	}
	for _, f := range []struct {
		field *int64
		value int64
	}{{&l.Tokens, 1_000_000}, {&l.Micros, 1e6}, {&l.RunMicros, 5e6}, {&l.ThreadMicros, 20e6}, {&l.HouseMicros, 50e6}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

// Waits says how turns wait for the providers of their models. A field that is 0 has its default.
type Waits struct {
	// First is the pause after the first failure, and Max the longest one: pauses double. Default to a second and a
	// minute. Each is randomly shortened by up to a half. A provider that asks for a longer pause gets it, if the turn
	// has time for it.
	First, Max time.Duration
	// Hold is the longest pause in which a turn keeps its worker. Defaults to 5 seconds.
	Hold time.Duration
	// Silence is how long a model may write nothing before the thread says so. Defaults to 20 seconds.
	Silence time.Duration
	// Brief is how long a wait, including its next pause, must be to get an entry. Defaults to 5 seconds.
	Brief time.Duration
	// Fallback is how long a provider must have failed to answer before the house's fallback models are asked. They are
	// asked at once if the provider wants a longer pause. Defaults to a minute.
	Fallback time.Duration
}

func (w Waits) withDefaults() Waits {
	return Waits{
		First: cmp.Or(w.First, time.Second), Max: cmp.Or(w.Max, time.Minute), Hold: cmp.Or(w.Hold, 5*time.Second),
		Silence: cmp.Or(w.Silence, 20*time.Second), Brief: cmp.Or(w.Brief, 5*time.Second),
		Fallback: cmp.Or(w.Fallback, time.Minute),
	}
}

// pause returns how long to wait after so many failures, at least one. asked is the pause that the provider asks for; 0
// if it does not.
func (w Waits) pause(failures int, asked time.Duration) time.Duration {
	grown := min(w.First, w.Max)
	for range min(failures-1, 40) {
		grown = min(grown*2, w.Max) // doubling step by step cannot overflow
	}
	// The random part keeps turns that were refused together from retrying together.
	grown = grown/2 + rand.N(grown/2+1)
	if asked > 0 {
		asked += rand.N(min(asked/10, 5*time.Second) + 1)
	}
	return max(grown, asked)
}

// Budget limits the cost of the installation's models: of calls with its keys, in all houses. Calls with a house's own
// key do not count.
type Budget struct {
	// DayMicros limits the spending of all houses together in a day (UTC), and PersonMicros that of the houses of one
	// person, in millionths of a US dollar. Default to 0: no limit.
	DayMicros, PersonMicros int64
	// UnknownMicros is the assumed cost of a million tokens of a model without a known price. Defaults to 0: nothing.
	UnknownMicros int64
}

// expectedOutput is how many tokens an answer is expected to have when money is reserved for it.
const expectedOutput = 4096

// RootLimits limit what follows from one entry of a person. A field that is 0 has its default.
type RootLimits struct {
	// Turns is how many turns may begin.
	Turns int
	// Threads is how many threads bots may create.
	Threads int
	// Time is how long after the first turn further ones may begin.
	Time time.Duration
	// Micros limits the cost of all turns together, in millionths of a US dollar.
	Micros int64
}

// Bounds reports whether a budget limits the calls at an endpoint.
func (b Budget) Bounds(e model.Endpoint) bool {
	return e.Shared && (b.DayMicros > 0 || b.PersonMicros > 0)
}

// Expected returns the cost to reserve for a call that sends so many tokens.
func (b Budget) Expected(e model.Endpoint, id string, input int64) int64 {
	u := model.Usage{Input: input, Output: expectedOutput}
	if price := model.Lookup(e.Provider, id).Price; price != nil {
		return price.Of(u).Micros()
	}
	return b.unknown(u)
}

// Charged returns the amount that a call counts against the installation's budget.
func (b Budget) Charged(e model.Endpoint, u model.Usage, cost model.Money, known bool) int64 {
	switch {
	case !e.Shared:
		return 0
	case known:
		return cost.Micros()
	}
	return b.unknown(u)
}

// unknown returns the assumed cost of tokens without a known price.
func (b Budget) unknown(u model.Usage) int64 {
	return (u.Total()*b.UnknownMicros + 999_999) / 1_000_000
}

// Most returns the limits in the form that the database uses, where a limit that is not set is the largest number.
func (b Budget) Most() (installation, person int64) {
	const noLimit = 1 << 62
	return cmp.Or(b.DayMicros, noLimit), cmp.Or(b.PersonMicros, noLimit)
}

// Lacks returns the error for a limit, by its name in the database, that a call would exceed; nil for "".
func (b Budget) Lacks(limit string) error {
	const next = "wait until midnight UTC, set a key of the house for the provider (Settings, Models), or ask the operator to raise the setting "
	switch limit {
	case "":
		return nil
	case "person":
		return &spentError{meter{name: "person_usd_day", next: next + "person_usd_day",
			words: fmt.Sprintf("the houses of one person may spend $%.2f a day with the keys of this installation, and less is left than this call may cost", dollars(b.PersonMicros))}}
	}
	return &spentError{meter{name: "installation_usd_day", next: next + "installation_usd_day",
		words: fmt.Sprintf("all houses together may spend $%.2f a day with the keys of this installation, and less is left than this call may cost", dollars(b.DayMicros))}}
}

// nearly is the used share of a limit at which an entry warns that the limit is near.
const nearly = 0.8

// meter is one limit and how much of it is used.
type meter struct {
	name      string
	used, max float64
	// words says which limit is used up, and next how to continue.
	words, next string
}

// daily reports whether it is a limit per day, which all turns share.
func (m meter) daily() bool { return strings.HasSuffix(m.name, "_usd_day") }

// round keeps as many digits as people read.
func round(x float64) float64 { return float64(int64(x*1e4+0.5)) / 1e4 }

func dollars(micros int64) float64 { return float64(micros) / 1e6 }

// spentError reports a budget of the installation that a call would exceed.
type spentError struct{ meter }
