package dispatch

import (
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Limits restrict the work of each thread, of each house, and of all houses of one person. Commands beyond the limit on
// waiting are refused. Turns of bots beyond it do not begin, and an entry in the thread says so.
//
// PersonRunning and PersonWaiting default to twice a house's limit, except PersonRunning of turns, which defaults to a
// house's limit. The defaults of the other fields are in [LimitSettings].
type Limits struct{ Commands, Turns, Runs jobs.Limits }

// withDefaults replaces the fields that are zero.
func (l Limits) withDefaults() Limits {
	byDefault := setting.Defaults(LimitSettings())
	for _, of := range []struct {
		limits, defaults *jobs.Limits
		running          int // the factor by which a person's limit exceeds a house's
	}{{&l.Commands, &byDefault.Commands, 2}, {&l.Turns, &byDefault.Turns, 1}, {&l.Runs, &byDefault.Runs, 2}} {
		of.defaults.PersonRunning, of.defaults.PersonWaiting = 0, 0
		*of.limits = of.limits.Or(*of.defaults)
		*of.limits = of.limits.Or(jobs.Limits{PersonRunning: of.running * of.limits.HouseRunning, PersonWaiting: 2 * of.limits.HouseWaiting})
	}
	return l
}

// LimitSettings returns the operator's settings for [Limits].
func LimitSettings() []setting.Setting[Limits] {
	return []setting.Setting[Limits]{
		setting.Count("house_commands", "16", "how many commands of a house run at once", func(l *Limits) *int { return &l.Commands.HouseRunning }),
		setting.Count("thread_commands", "8", "how many commands of a thread run at once", func(l *Limits) *int { return &l.Commands.ThreadRunning }),
		setting.Count("house_queue", "1000", "how many further commands of a house may wait", func(l *Limits) *int { return &l.Commands.HouseWaiting }),
		setting.Count("thread_queue", "200", "how many further commands of a thread may wait", func(l *Limits) *int { return &l.Commands.ThreadWaiting }),
		setting.Count("person_commands", "32", "how many commands of all houses of one person run at once", func(l *Limits) *int { return &l.Commands.PersonRunning }),
		setting.Count("person_queue", "2000", "how many further commands of all houses of one person may wait", func(l *Limits) *int { return &l.Commands.PersonWaiting }),
		setting.Count("thread_turns", "32", "how many turns of bots in a thread run at once", func(l *Limits) *int { return &l.Turns.ThreadRunning }),
		setting.Count("house_turns", "256", "how many turns of a house run at once", func(l *Limits) *int { return &l.Turns.HouseRunning }),
		setting.Count("person_turns", "256", "how many turns of all houses of one person run at once", func(l *Limits) *int { return &l.Turns.PersonRunning }),
		setting.Count("thread_runs", "1", "how many coding agents run in a thread at once", func(l *Limits) *int { return &l.Runs.ThreadRunning }),
		setting.Count("house_runs", "16", "how many coding agents of a house run at once", func(l *Limits) *int { return &l.Runs.HouseRunning }),
		setting.Count("person_runs", "32", "how many coding agents of all houses of one person run at once", func(l *Limits) *int { return &l.Runs.PersonRunning }),
		setting.Count("thread_turn_queue", "200", "how many further turns of a thread may wait", func(l *Limits) *int { return &l.Turns.ThreadWaiting }),
		setting.Count("house_turn_queue", "1000", "how many further turns of a house may wait", func(l *Limits) *int { return &l.Turns.HouseWaiting }),
		setting.Count("person_turn_queue", "2000", "how many further turns of all houses of one person may wait", func(l *Limits) *int { return &l.Turns.PersonWaiting }),
	}
}
