package web

import (
	"slices"
	"strings"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
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
	// FirstUnread reports that it is the first one that the reader has not seen.
	FirstUnread bool
}

// worksWith says with which program and model a bot wrote a row, if the row says it.
func worksWith(r row) string {
	var parts []string
	if a, ok := entry.As[entry.PiAssistant](r.Entry); ok {
		parts = []string{a.Harness, a.Model}
	} else if c, ok := entry.As[entry.Chat](r.Entry); ok && c.Turn != nil {
		parts = []string{c.Turn.Model}
	}
	return clip(strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · "), maxWord)
}

// markUnread marks the first entry of others after the last one that the reader has seen. It marks none if they have never
// opened the thread, or if entries before the window are unread too.
func (w *window) markUnread(read *arbev1.Reading, me string) {
	if read.GetUnread() == 0 || read.Seq == 0 || read.Seq < w.First-1 {
		return
	}
	for i := range w.Rows {
		r := &w.Rows[i]
		if r.Entry.Seq > read.Seq && r.View != nil && r.Entry.Author != me {
			r.FirstUnread, r.Joined = true, false
			return
		}
	}
}
