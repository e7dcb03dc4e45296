package fanout

import (
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Event is one event of a tail: an entry, a delta, the fact that it has caught up, or that the log is closed. Exactly one
// of Entry, Delta, CaughtUp and Closed is set.
type Event struct {
	// Entry is the next entry of the log. Do not change it, because tails share it.
	Entry *entry.Entry
	// More reports that the next entry is already available, so that a consumer can send both together.
	More bool
	// Delta is a piece of an unfinished entry.
	Delta *Delta
	// CaughtUp reports that every entry that the log had when the tail began has been sent. It is sent once.
	CaughtUp bool
	// Closed reports that all entries were sent and none will follow. The tail ends.
	Closed bool
	// Seq is the position from which to resume after this event.
	Seq int64
	// Known is a time at which this server knew of Entry, soon after it learned of it.
	Known time.Time
}

// Delta is a piece of an entry that is still being produced: live output, or text as a model writes it. It is not
// stored in the log and may be lost; the final entry is complete. A tail never sends a delta after the entry with its
// id.
type Delta struct {
	// EntryID is the id of the final entry. For a step of a bot's turn, "~" and the call of the model follow. A later
	// call replaces an earlier one. If the step leaves no entry, its deltas end with the turn.
	EntryID string
	// Offset is the number of bytes before Data. A tail sends increasing offsets. If one is greater than the end of the
	// previous delta, the bytes in between were skipped.
	Offset int64
	// Data may be cut anywhere, even inside a character. Do not change it, because tails share it.
	Data []byte
}
