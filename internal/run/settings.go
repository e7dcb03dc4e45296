package run

import (
	"time"

	"github.com/arbe-dev/arbe/internal/setting"
)

// Limits say when a run counts as lost, and limit its work. A zero field has its default.
type Limits struct {
	// Silence is how long a runner may be silent after a first heartbeat before its run counts as lost. Start is how long
	// it may take until its first heartbeat.
	Silence, Start time.Duration
	// Entries and Bytes limit what one run may write to its log. The full text of a long result counts as an entry.
	Entries, Bytes int
	// Depth limits how many threads may be above a delegated one. Children limits the unfinished tasks that were
	// delegated from one thread.
	Depth, Children int
	// Wait is how long a bot waits for its tasks before it is called again, unless its call sets another time. WaitMost is
	// the longest time that a call may set.
	Wait, WaitMost time.Duration
}

// LimitSettings returns the settings of [Limits] for operators.
func LimitSettings() []setting.Setting[Limits] {
	return []setting.Setting[Limits]{
		setting.Duration("run_silence", "90s", "how long the runner of a coding agent may be silent before its run counts as lost", func(l *Limits) *time.Duration { return &l.Silence }),
		setting.Duration("run_start", "30m", "how long a coding agent may take to start, until its runner first reports", func(l *Limits) *time.Duration { return &l.Start }),
		setting.Count("run_entries", "200000", "how many entries one run of a coding agent may write", func(l *Limits) *int { return &l.Entries }),
		setting.Count("run_bytes", "1073741824", "how many bytes all entries of one run may have", func(l *Limits) *int { return &l.Bytes }),
		setting.Count("run_depth", "4", "how many threads may be above the thread of a delegated task", func(l *Limits) *int { return &l.Depth }),
		setting.Count("run_children", "20", "how many unfinished tasks may be delegated from one thread", func(l *Limits) *int { return &l.Children }),
		setting.Duration("run_wait", "2h", "how long a bot waits for its delegated tasks before it is asked again, unless it chooses another time", func(l *Limits) *time.Duration { return &l.Wait }),
		setting.Duration("run_wait_most", "24h", "longest wait that a bot may choose for its delegated tasks", func(l *Limits) *time.Duration { return &l.WaitMost }),
	}
}

func (l Limits) withDefaults() Limits {
	d := setting.Defaults(LimitSettings())
	or(&l.Silence, d.Silence)
	or(&l.Start, d.Start)
	or(&l.Entries, d.Entries)
	or(&l.Bytes, d.Bytes)
	or(&l.Depth, d.Depth)
	or(&l.Children, d.Children)
	or(&l.Wait, d.Wait)
	or(&l.WaitMost, d.WaitMost)
	l.Wait = min(l.Wait, l.WaitMost)
	return l
}

// or gives a field its default if it is zero.
func or[T comparable](field *T, byDefault T) {
	var zero T
	if *field == zero {
		*field = byDefault
	}
}
