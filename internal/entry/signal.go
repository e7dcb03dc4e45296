package entry

import (
	"fmt"

	"github.com/arbe-dev/arbe/internal/fault"
)

// StatusChanged records a change of the thread's status. It is written only in the transaction that changes the row, so
// that log and row always agree.
type StatusChanged struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Reason is a short reason; empty if the new status is enough.
	Reason string `json:"reason,omitempty"`
	// Epoch is the run, if any, that begins or ends with it.
	Epoch int64 `json:"epoch,omitempty"`
	// Policy is a [Reason]: the policy that started the run that begins with it.
	Policy string `json:"policy,omitempty"`
}

func (StatusChanged) Type() string { return "signal.thread.status_changed" }

// parts: a run begins and ends with the running status of its thread.
func (s StatusChanged) parts(Entry) []Part {
	switch {
	case s.Epoch == 0:
		return nil
	case s.To == "running":
		return []Part{{Work{RunWork, RunID(s.Epoch)}, Opens}}
	}
	return []Part{{Work{RunWork, RunID(s.Epoch)}, Completes}}
}

func (s StatusChanged) Validate() error {
	if s.To == "" {
		return fault.New(fault.Invalid, "to: it is empty", "give the new status")
	}
	return nil
}

// Plain returns a few words: "open → closed".
func (s StatusChanged) Plain() string {
	text := s.From + " → " + s.To
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

// Forked is the first entry of a fork, after the entries that it shares with its source.
type Forked struct {
	// ThreadID is the source, which may have been deleted since.
	ThreadID string `json:"thread_id"`
	// Seq is the last entry that both share.
	Seq int64 `json:"seq"`
}

func (Forked) Type() string { return "signal.thread.forked" }

func (f Forked) Validate() error {
	if f.ThreadID == "" {
		return fault.New(fault.Invalid, "thread_id: it is empty", "give the id of the thread it was forked from")
	}
	return nil
}

// Plain returns a few words: "forked from t7k2m9q4x1ab at 12".
func (f Forked) Plain() string { return fmt.Sprintf("forked from %s at %d", f.ThreadID, f.Seq) }

// HouseCreated is the first entry of a house's primary thread.
type HouseCreated struct {
	HouseID string `json:"house_id"`
	Name    string `json:"name"`
}

func (HouseCreated) Type() string { return "signal.house.created" }

func (h HouseCreated) Validate() error {
	if h.HouseID == "" {
		return fault.New(fault.Invalid, "house_id: it is empty", "give the house's id")
	}
	return nil
}

func (h HouseCreated) Plain() string { return "house " + h.Name + " was created" }
