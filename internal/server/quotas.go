package server

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/turn"
)

// quotas are the operator's settings of what houses and persons may use.
type quotas struct {
	work            dispatch.Limits
	roots           turn.RootLimits
	budget          turn.Budget
	turnMaxima      bot.Limits
	creation        house.Creation
	housesPerPerson int
}

// quotas returns what the settings say.
func (c Config) quotas() (q quotas, err error) {
	r := reader{}
	q.work = dispatch.Limits{
		HouseRunning: r.count("house_commands", c.HouseCommands), ThreadRunning: r.count("thread_commands", c.ThreadCommands),
		PersonRunning: r.count("person_commands", c.PersonCommands),
		HouseWaiting:  r.count("house_queue", c.HouseQueue), ThreadWaiting: r.count("thread_queue", c.ThreadQueue),
		PersonWaiting: r.count("person_queue", c.PersonQueue),
		ThreadTurns:   r.count("thread_turns", c.ThreadTurns), HouseTurns: r.count("house_turns", c.HouseTurns),
		PersonTurns:        r.count("person_turns", c.PersonTurns),
		ThreadTurnsWaiting: r.count("thread_turn_queue", c.ThreadTurnQueue), HouseTurnsWaiting: r.count("house_turn_queue", c.HouseTurnQueue),
		PersonTurnsWaiting: r.count("person_turn_queue", c.PersonTurnQueue),
	}
	q.turnMaxima = bot.Limits{
		TurnSteps: r.count("turn_max_steps", c.TurnMaxSteps), TurnTokens: int64(r.count("turn_max_tokens", c.TurnMaxTokens)),
		TurnMinutes: r.count("turn_max_minutes", c.TurnMaxMinutes),
	}.OrMaxima()
	q.roots = turn.RootLimits{Turns: r.count("entry_turns", c.EntryTurns), Threads: r.count("entry_threads", c.EntryThreads)}
	q.housesPerPerson = r.count("houses_per_person", c.HousesPerPerson)
	if err = r.err; err != nil {
		return q, err
	}
	var unknown, most float64
	for _, f := range []struct {
		name, text string
		least      float64
		to         func(usd float64)
	}{
		{"entry_usd", c.EntryUSD, 1e-6, func(usd float64) { q.roots.Micros = micros(usd) }},
		{"turn_max_usd", c.TurnMaxUSD, 1e-6, func(usd float64) { most = usd }},
		{"installation_usd_day", c.InstallationUSDDay, 1e-6, func(usd float64) { q.budget.DayMicros = micros(usd) }},
		{"person_usd_day", c.PersonUSDDay, 1e-6, func(usd float64) { q.budget.PersonMicros = micros(usd) }},
		{"unknown_usd", c.UnknownUSD, 0, func(usd float64) { unknown = usd }},
	} {
		if f.text == "" {
			continue
		}
		usd, err := strconv.ParseFloat(f.text, 64)
		if err != nil || math.IsNaN(usd) || usd < f.least || usd > 1e9 {
			return q, fault.Newf(fault.Invalid, "write an amount of US dollars, such as 50 or 0.5", "%s: %q is not an amount", f.name, f.text)
		}
		f.to(usd)
	}
	q.budget.UnknownMicros = int64(math.Round(unknown * 1e6))
	if most > 0 {
		q.turnMaxima.TurnUSD = most
	}
	if c.EntryTime != "" {
		if q.roots.Time, err = time.ParseDuration(c.EntryTime); err != nil || q.roots.Time <= 0 {
			return q, fault.Newf(fault.Invalid, "write it as 24h", "entry_time: %q is not a duration", c.EntryTime)
		}
	}
	if q.creation = house.Creation(c.HouseCreation); q.creation != "" && !slices.Contains(house.Creations, q.creation) {
		return q, fault.Newf(fault.Invalid, "use anyone, members or operators", "house_creation: %q is not one of its values", c.HouseCreation)
	}
	return q, nil
}
