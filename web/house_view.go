package web

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// newThread is the form that starts a thread. Its ids ensure that sending it twice starts only one thread. People are the
// names in its menu.
type newThread struct {
	ThreadID, EntryID string
	People            []*arbev1.Agent
	// Text and Name are the values of a form that was refused because of Problem, before a thread was created.
	Text, Name string
	Problem    *fault.Error
	// Example is the key of the example that the reader chose; empty if none.
	Example string
	// Missing is what the house still needs; nil if the page does not show it.
	Missing *checklist
}

// doingWords says what the current run of a thread does and what it has cost so far. Without a current run it is empty.
func doingWords(t *arbev1.Thread) string {
	if t.Running.GetRunEpoch() == 0 || t.LastRun == nil || t.LastRun.FinishedAt != nil {
		return ""
	}
	var words []string
	if doing := clip(t.LastRun.Doing, maxWord); doing != "" {
		words = append(words, doing)
	}
	if t.LastRun.CostMicros > 0 {
		words = append(words, costText(entry.TurnUsage{CostMicros: t.LastRun.CostMicros, CostUnknown: t.LastRun.CostUnknown}))
	}
	return strings.Join(words, " · ")
}
