package web

import (
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
