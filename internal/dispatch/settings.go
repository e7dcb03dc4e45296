package dispatch

import "github.com/arbe-dev/arbe/internal/setting"

// LimitSettings are what an operator can set of [Limits].
func LimitSettings() []setting.Setting[Limits] {
	return []setting.Setting[Limits]{
		setting.Count("house_commands", "16", "how many commands of a house run at once", func(l *Limits) *int { return &l.HouseRunning }),
		setting.Count("thread_commands", "8", "how many commands of a thread run at once", func(l *Limits) *int { return &l.ThreadRunning }),
		setting.Count("house_queue", "1000", "how many further commands of a house may wait", func(l *Limits) *int { return &l.HouseWaiting }),
		setting.Count("thread_queue", "200", "how many further commands of a thread may wait", func(l *Limits) *int { return &l.ThreadWaiting }),
		setting.Count("person_commands", "32", "how many commands of all houses of one person run at once", func(l *Limits) *int { return &l.PersonRunning }),
		setting.Count("person_queue", "2000", "how many further commands of these may wait", func(l *Limits) *int { return &l.PersonWaiting }),
		setting.Count("thread_turns", "32", "how many turns of bots in a thread run at once", func(l *Limits) *int { return &l.ThreadTurns }),
		setting.Count("house_turns", "256", "how many turns of a house run at once", func(l *Limits) *int { return &l.HouseTurns }),
		setting.Count("person_turns", "256", "how many turns of all houses of one person run at once", func(l *Limits) *int { return &l.PersonTurns }),
		setting.Count("thread_turn_queue", "200", "how many further turns of a thread may wait", func(l *Limits) *int { return &l.ThreadTurnsWaiting }),
		setting.Count("house_turn_queue", "1000", "how many further turns of a house may wait", func(l *Limits) *int { return &l.HouseTurnsWaiting }),
		setting.Count("person_turn_queue", "2000", "how many further turns of all houses of one person may wait", func(l *Limits) *int { return &l.PersonTurnsWaiting }),
	}
}
