package web

import (
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// newThread is the form that starts a thread. Because of its ids, sending it twice starts one thread. People are the names
// that its menu offers.
type newThread struct {
	ThreadID, EntryID string
	People            []*arbev1.Agent
	// Text and Name are the values of a form that was refused because of Problem, before any thread was made.
	Text, Name string
	Problem    *fault.Error
}
