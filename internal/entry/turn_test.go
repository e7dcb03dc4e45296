package entry_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestAFootSaysInAFewWordsWhatATurnDid(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]entry.TurnSummary{
		"worked for 0.4 s · $0.00":                                          {DurationMS: 400},
		"worked for 40 s · 3 commands · $0.02":                              {DurationMS: 40_100, Commands: 3, Usage: entry.TurnUsage{CostMicros: 20_400}},
		"worked for 12 min · 1 command · less than $0.01":                   {DurationMS: 12 * 60_000, Commands: 1, Usage: entry.TurnUsage{CostMicros: 9}},
		"worked for 1.0 s · cost unknown":                                   {DurationMS: 1000, Usage: entry.TurnUsage{CostUnknown: true}},
		"worked for 1.0 s · more than $1.50 · cut off at the model's limit": {DurationMS: 1000, Cut: true, Usage: entry.TurnUsage{CostMicros: 1_500_000, CostUnknown: true}},
	} {
		if got := s.Foot(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
