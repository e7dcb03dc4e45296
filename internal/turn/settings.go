package turn

import (
	"time"

	"cmp"

	"github.com/arbe-dev/arbe/internal/setting"
)

// RootSettings are the operator's settings for [RootLimits].
func RootSettings() []setting.Setting[RootLimits] {
	return []setting.Setting[RootLimits]{
		setting.Count("entry_turns", "50", "how many turns of bots may follow from one message of a person", func(l *RootLimits) *int { return &l.Turns }),
		setting.Count("entry_threads", "20", "how many threads bots may create because of one message of a person", func(l *RootLimits) *int { return &l.Threads }),
		setting.Duration("entry_time", "24h", "how long after one message of a person turns may follow from it", func(l *RootLimits) *time.Duration { return &l.Time }),
		setting.Micros("entry_usd", "20", "US dollars that everything that follows from one message of a person may cost", func(l *RootLimits) *int64 { return &l.Micros }),
	}
}

// BudgetSettings are the operator's settings for [Budget].
func BudgetSettings() []setting.Setting[Budget] {
	return []setting.Setting[Budget]{
		setting.Micros("installation_usd_day", "200", "US dollars that all houses together may spend in a day with the installation's keys of models", func(b *Budget) *int64 { return &b.DayMicros }),
		setting.Micros("person_usd_day", "50", "US dollars that all houses of one person together may spend in a day with the installation's keys of models", func(b *Budget) *int64 { return &b.PersonMicros }),
		setting.MicrosOrNone("unknown_usd", "10", "US dollars that a million tokens count if the price of the installation's model is unknown", func(b *Budget) *int64 { return &b.UnknownMicros }),
	}
}

// WithDefaults replaces the zero fields by the defaults of [RootSettings].
func (l RootLimits) WithDefaults() RootLimits {
	byDefault := setting.Defaults(RootSettings())
	return RootLimits{cmp.Or(l.Turns, byDefault.Turns), cmp.Or(l.Threads, byDefault.Threads), cmp.Or(l.Time, byDefault.Time), cmp.Or(l.Micros, byDefault.Micros)}
}
