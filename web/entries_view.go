package web

import (
	"github.com/a-h/templ"
	"github.com/arbe-dev/arbe/web/transcript"
)

// window is a piece of a thread's log, as rows.
type window struct {
	Thread string
	Rows   []row
	// Places are the topics of the house's sidebar and of the names in it.
	Places string
	// First and Last are the positions between which it has all rows, both included. Tail is the position of the log's last
	// entry; 0 if the log is empty.
	First, Last, Tail int64
	// Writing are the turns in progress, if the window is at the end of the log.
	Writing []transcript.TurnAtWork
}

// HasOlder reports whether the log has entries before it, and AtEnd whether it has none after it.
func (w window) HasOlder() bool { return w.First > 1 }

func (w window) AtEnd() bool { return w.Last >= w.Tail }

// row is one entry as a page shows it. View is its body, rendered; nil for an entry that is shown elsewhere.
type row struct {
	transcript.Row
	View templ.Component
}
