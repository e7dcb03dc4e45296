package web

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// pageSize is how many entries a page shows at first, and how many more each time.
	pageSize = 50
	// joinWithin is how soon somebody has to go on for their entries to share one head.
	joinWithin = 5 * time.Minute
	// searchSize is how far, in entries, the other half of a command is looked for beyond the page.
	searchSize = 500
)

// row is one entry as a page shows it.
type row struct {
	Thread string
	Seq    int64
	ID     string
	Author author
	At     time.Time
	// ForkID is the id of a thread that is forked here.
	ForkID string
	Noted  bool
	// Joined rows go on under the head of the row above.
	Joined bool
	// Body is nil for an entry that shows elsewhere; the row is then only its place in the log.
	Body templ.Component
}

// transcript makes rows of entries, in the order of the log. A page uses one for all of its entries, a
// live tail one for as long as it lives. It is not safe for concurrent use.
type transcript struct {
	services services
	thread   string
	// origin is where the thread was forked from; nil when it is no fork.
	origin *arbev1.Origin
	people *people
	// whole shows entries without a fold.
	whole bool

	// starts and ends are the two halves of the commands it knows, by the command's id.
	starts map[string]commandStart
	ends   map[string]commandEnd

	// lastSaid is the position of the last row that was not a note, lastAuthor and lastAt its head.
	lastSaid   int64
	lastAuthor string
	lastAt     time.Time
}

type commandStart struct {
	seq  int64
	line string
}

type commandEnd struct {
	seq    int64
	result entry.CommandResult
}

func (a *app) newTranscript(thread *arbev1.Thread, p *people) *transcript {
	return &transcript{
		services: a.services, thread: thread.Id, origin: thread.ForkedFrom, people: p,
		starts: map[string]commandStart{}, ends: map[string]commandEnd{},
	}
}

// rows makes the rows of a piece of the log. tail is the position of the log's last entry: a command whose
// result is not in the piece has ended if the rest of the log has it.
func (t *transcript) rows(ctx context.Context, piece []entry.Entry, tail int64) ([]row, error) {
	for _, e := range piece {
		t.learn(e)
	}
	if err := t.findEnds(ctx, piece, tail); err != nil {
		return nil, err
	}
	rows := make([]row, 0, len(piece))
	for _, e := range piece {
		r, err := t.row(ctx, e)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// row makes the row of the next entry.
func (t *transcript) row(ctx context.Context, e entry.Entry) (row, error) {
	t.learn(e)
	if err := t.findStart(ctx, e); err != nil {
		return row{}, err
	}
	k := kindOf(e)
	r := row{
		Thread: t.thread, Seq: e.Seq, ID: e.ID, At: e.Time, Author: t.people.byID(ctx, e.Author),
		Noted: k.shape == noted, Body: k.body(t, e),
	}
	if r.Noted {
		if r.Body != nil {
			t.lastAt = time.Time{} // a note between two rows parts them
		}
		return r, nil
	}
	r.Joined = t.lastAuthor == e.Author && !t.lastAt.IsZero() && e.Time.Sub(t.lastAt) < joinWithin
	r.ForkID = newID()
	t.lastSaid, t.lastAuthor, t.lastAt = e.Seq, e.Author, e.Time
	return r, nil
}

// learn remembers the halves of commands.
func (t *transcript) learn(e entry.Entry) {
	if c, ok := entry.As[entry.Command](e); ok {
		t.starts[e.ID] = commandStart{e.Seq, c.Line()}
	}
	if r, ok := entry.As[entry.CommandResult](e); ok {
		t.ends[r.CommandID] = commandEnd{e.Seq, r}
	}
}

// findStart looks above for the command that e is the result of.
func (t *transcript) findStart(ctx context.Context, e entry.Entry) error {
	r, ok := entry.As[entry.CommandResult](e)
	if _, known := t.starts[r.CommandID]; !ok || known {
		return nil
	}
	above, err := t.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
	for _, e := range above {
		if e.ID == r.CommandID {
			t.learn(e)
		}
	}
	return err
}

// findEnds looks below piece for the results of its commands.
func (t *transcript) findEnds(ctx context.Context, piece []entry.Entry, tail int64) error {
	open := false
	for _, e := range piece {
		if e.Type == (entry.Command{}).Type() {
			_, ended := t.ends[e.ID]
			open = open || !ended
		}
	}
	if !open || piece[len(piece)-1].Seq >= tail {
		return nil
	}
	below, err := t.list(ctx, &arbev1.ListRequest{After: piece[len(piece)-1].Seq, Limit: searchSize})
	for _, e := range below {
		if r, ok := entry.As[entry.CommandResult](e); ok {
			t.ends[r.CommandID] = commandEnd{e.Seq, r}
		}
	}
	return err
}

func (t *transcript) list(ctx context.Context, req *arbev1.ListRequest) ([]entry.Entry, error) {
	req.ThreadId = t.thread
	res, err := t.services.entries.List(ctx, req)
	if err != nil {
		return nil, err
	}
	return entriesOf(res.Entries), nil
}

func entriesOf(wire []*arbev1.Entry) []entry.Entry {
	all := make([]entry.Entry, len(wire))
	for i, e := range wire {
		all[i] = entryOf(e)
	}
	return all
}

func entryOf(e *arbev1.Entry) entry.Entry {
	return entry.Entry{
		Seq: e.Seq, ID: e.Id, StreamID: e.StreamId, Author: e.AuthorAgentId,
		Type: e.Type, Payload: json.RawMessage(e.Payload), Time: e.Ts.AsTime(),
	}
}

// clip cuts text to at most n bytes, between two characters, and says so with an ellipsis.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
