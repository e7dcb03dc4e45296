package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// pageSize is how many entries a page shows at first, and how many more each time.
	pageSize = 50
	// joinWithin is the longest time between two entries of one author that share a head.
	joinWithin = 5 * time.Minute
	// searchSize is how many entries beyond the page are searched for the other half of a command.
	searchSize = 500
	// maxSearches limits the number of such searches for one page, so that a page takes a bounded number of calls.
	maxSearches = 4
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
	// Joined rows have no head of their own and continue the row above.
	Joined bool
	// FirstOfDay is set for the first row of a day, and of a piece of the log.
	FirstOfDay bool
	// Why says why the turn began whose first row it is; otherwise it is empty.
	Why string
	// Body is nil for an entry that is shown elsewhere. The row is then only an anchor.
	Body templ.Component
}

// transcript makes rows of entries, in the order of the log. A page uses one for all of its entries, and a
// live tail uses one until it ends. It is not safe for concurrent use.
type transcript struct {
	services services
	log      *slog.Logger
	thread   string
	// origin is where the thread was forked from; nil if it is no fork.
	origin *arbev1.Origin
	people *people
	// whole shows entries in full.
	whole bool

	// ledger pairs the entries that it has seen. running is the turn that the row of the thread says is at work, and unseen are
	// turns of which only deltas arrived; nothing in the ledger may be about them. explained are the turns whose reason a row shows.
	ledger    entry.Ledger
	running   turnSeen
	unseen    map[string]turnSeen
	explained map[string]bool
	// lastChat is the id of the last chat that is no answer of a turn.
	lastChat string
	// house and environment are the thread's. If environment is empty, the house's default applies.
	house, environment string
	// effort is the remaining budget for formatting this piece.
	effort *markup.Effort
	// searches counts the searches for this piece.
	searches int
	// lookups counts the artifacts that were looked up for this piece.
	lookups int

	// lastSaid is the position of the last row that was not a note, lastAuthor and lastAt its head.
	lastSaid             int64
	lastAuthor, lastTurn string
	lastAt               time.Time
	// lastDay is the day of the last visible row, lastSandbox the sandbox of the last command with a result.
	lastDay, lastSandbox string
}

// maxLearned limits what a live tail remembers of entries, in bytes. It reads again what it forgot.
const maxLearned = 4 << 20

func (a *app) newTranscript(thread *arbev1.Thread, p *people) *transcript {
	return &transcript{
		services: a.services, log: a.log, thread: thread.Id, origin: thread.ForkedFrom, people: p,
		ledger: entry.Ledger{Brief: brief}, unseen: map[string]turnSeen{}, explained: map[string]bool{},
		house: thread.HouseId, environment: thread.EnvironmentId,
	}
}

// rows makes the rows of a piece of the log. tail is the position of the log's last entry: a command whose
// result is not in the piece has ended if the rest of the log has it.
func (t *transcript) rows(ctx context.Context, piece []entry.Entry, tail int64) ([]row, error) {
	t.searches, t.lookups, t.effort = 0, 0, markup.NewEffort()
	for _, e := range piece {
		t.ledger.Learn(e)
	}
	if err := t.findEnds(ctx, piece, tail); err != nil {
		return nil, err
	}
	if err := t.meet(ctx, piece...); err != nil {
		return nil, err
	}
	rows := make([]row, 0, len(piece))
	for _, e := range piece {
		if err := ctx.Err(); err != nil {
			return nil, err // nobody gets this page, because the reader left
		}
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
	if _, placed := t.ledger.Placed(e.ID); !placed && updatesOldest(e) {
		if err := t.findOpen(ctx, e.Seq); err != nil {
			return row{}, err
		}
	}
	t.ledger.Learn(e)
	if err := t.findStart(ctx, e); err != nil {
		return row{}, err
	}
	if err := t.meet(ctx, e); err != nil {
		return row{}, err
	}
	k := kindOf(e)
	r := row{
		Thread: t.thread, Seq: e.Seq, ID: e.ID, At: e.Time, Author: t.people.byID(e.Author),
		Noted: k.shape == noted,
		Body:  t.safe(ctx, e, func() templ.Component { return k.body(ctx, t, e) }, unreadable(e)),
	}
	if day := dayOf(e.Time); r.Body != nil && day != t.lastDay {
		r.FirstOfDay, t.lastDay = true, day
	}
	if c, ok := entry.As[entry.Chat](e); ok && c.Turn == nil {
		t.lastChat = e.ID
	}
	switch {
	case r.Body == nil:
	case r.Noted:
		t.lastAt = time.Time{} // because a note parts the rows around it
	default:
		t.head(&r, e)
	}
	return r, nil
}

// head decides whether a row has a head of its own or continues the row above.
func (t *transcript) head(r *row, e entry.Entry) {
	turn := entry.TurnOf(e.ID)
	together := e.Time.Sub(t.lastAt) < joinWithin || turn != "" && turn == t.lastTurn
	r.Joined = t.lastAuthor == e.Author && !t.lastAt.IsZero() && together && (turn == t.lastTurn || turn == "")
	if r.Why = t.reasonOf(e); r.Why != "" {
		r.Joined = false
	}
	r.ForkID = newID()
	t.lastSaid, t.lastAuthor, t.lastAt, t.lastTurn = e.Seq, e.Author, e.Time, turn
}

// meet looks up the agents whom entries name. It does so for many entries at once, and before they are rendered: if a name
// cannot be looked up, the page fails, but an entry that cannot be rendered does not make it fail.
func (t *transcript) meet(ctx context.Context, piece ...entry.Entry) error {
	var ids []string
	for _, e := range piece {
		ids = append(ids, e.Author)
		ids = append(ids, entry.Agents(e)...)
		if c, ok := entry.As[entry.Chat](e); ok {
			if to := t.chat(c.ReplyTo); to != nil {
				ids = append(ids, to.Author)
			}
		}
		if result, _, ended := t.ended(e.ID); ended {
			ids = append(ids, result.CancelledBy)
		}
	}
	return t.people.meet(ctx, ids...)
}

// safe renders a part of an entry. If that fails, it logs the error and returns instead, because one entry must not make the
// whole page fail.
func (t *transcript) safe(ctx context.Context, e entry.Entry, part func() templ.Component, instead templ.Component) (shown templ.Component) {
	err := guarded(func() error {
		c := part()
		if c == nil {
			return nil
		}
		text, err := rendered(ctx, c)
		shown = templ.Raw(string(text))
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil // nobody gets this page, because the reader left
	}
	if err != nil {
		t.log.ErrorContext(ctx, "web: an entry cannot be rendered", "thread", t.thread, "seq", e.Seq, "type", e.Type, "error", err)
		return instead
	}
	return shown
}

// findStart searches the entries before e for the command or the tool call that it completes.
func (t *transcript) findStart(ctx context.Context, e entry.Entry) error {
	for _, part := range entry.Parts(e) {
		sought := part.Kind == entry.CommandWork || part.Kind == entry.CallWork && entry.TurnOf(part.ID) != ""
		if !sought || part.Stage != entry.Completes || t.ledger.Of(part.Kind, part.ID).Opened() != nil || t.searches == maxSearches {
			continue
		}
		t.searches++
		above, err := t.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
		for _, e := range above {
			if slices.Contains(entry.Parts(e), entry.Part{Work: part.Work, Stage: entry.Opens}) {
				t.ledger.Learn(e)
			}
		}
		return err
	}
	return nil
}

// findOpen searches the entries before a position (0 is the end) for commands that have not ended there, unless one is known.
func (t *transcript) findOpen(ctx context.Context, before int64) error {
	if _, known := t.ledger.OldestOpen(entry.CommandWork); known || t.searches == maxSearches {
		return nil
	}
	t.searches++
	above, err := t.list(ctx, &arbev1.ListRequest{Before: before, Last: before == 0, Limit: searchSize})
	for _, e := range above {
		if !updatesOldest(e) {
			t.ledger.Learn(e)
		}
	}
	return err
}

// updatesOldest reports whether an entry belongs to the oldest command that waits, and does not name it.
func updatesOldest(e entry.Entry) bool {
	part, _ := entry.DoesTo(e, entry.CommandWork)
	return part.Stage == entry.UpdatesOldest
}

// findEnds searches the entries after piece for those that complete what the piece opens.
func (t *transcript) findEnds(ctx context.Context, piece []entry.Entry, tail int64) error {
	open := slices.ContainsFunc(piece, func(e entry.Entry) bool {
		return slices.ContainsFunc(entry.Parts(e), func(p entry.Part) bool {
			ends := p.Kind == entry.CommandWork || p.Kind == entry.CallWork || p.Kind == entry.ApprovalWork
			return ends && p.Stage == entry.Opens && t.ledger.Of(p.Kind, p.ID).Completed() == nil
		})
	})
	if !open || piece[len(piece)-1].Seq >= tail {
		return nil
	}
	below, err := t.list(ctx, &arbev1.ListRequest{After: piece[len(piece)-1].Seq, Limit: searchSize})
	for _, e := range below {
		// Commands that begin below the piece are not shown in it. That a turn ended below says that its calls have ended.
		if part, ok := entry.DoesTo(e, entry.CommandWork); !ok || part.Stage == entry.Completes {
			t.ledger.Learn(e)
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

// clip is [entry.Clip]: pages say it at every text that somebody wrote.
func clip(text string, n int) string { return entry.Clip(text, n) }
