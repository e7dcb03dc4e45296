package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
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

	// starts and ends are the two halves of the commands that it has seen, by the command's id.
	starts map[string]commandStart
	ends   map[string]commandEnd
	// open are the commands that had not ended at the last entry seen, in the order of the log.
	open []string
	// builds are the builds of sandboxes that commands waited for, by the command's id. buildOf is the command that a build
	// was for, by the id of the build's entry.
	builds  map[string]entry.EnvironmentPrepared
	buildOf map[string]string
	// turns are the turns of bots that it has seen, by id. steps has the ids of their steps, results the results of tool
	// calls by the ids of their entries, and chats what was said, by the entry's id.
	turns   map[string]*turnSeen
	steps   map[string]bool
	results map[string]entry.PiToolResult
	// asked are the requests for approval by the ids of the results of their calls, and answered the answers by the ids of
	// the requests.
	asked    map[string]string
	answered map[string]entry.PermissionAnswered
	chats    map[string]chatSeen
	// lastChat is the id of the last chat that is no answer of a turn.
	lastChat string
	// house and environment are the thread's. If environment is empty, the house's default applies.
	house, environment string
	// effort is the remaining budget for formatting this piece.
	effort *effort
	// searches counts the searches for this piece.
	searches int
	// lookups counts the artifacts that were looked up for this piece.
	lookups int
	// learned is about how many bytes the maps hold.
	learned int

	// lastSaid is the position of the last row that was not a note, lastAuthor and lastAt its head.
	lastSaid             int64
	lastAuthor, lastTurn string
	lastAt               time.Time
	// lastDay is the day of the last visible row, lastSandbox the sandbox of the last command with a result.
	lastDay, lastSandbox string
}

// commandStart is where a command started, the beginning of its line, and the sandbox that its thread had then.
type commandStart struct {
	seq           int64
	line, sandbox string
}

// maxLearned limits what a live tail remembers of commands, in bytes. It reads again what it forgot.
const maxLearned = 4 << 20

type commandEnd struct {
	seq    int64
	result entry.CommandResult
}

func (a *app) newTranscript(thread *arbev1.Thread, p *people) *transcript {
	return &transcript{
		services: a.services, log: a.log, thread: thread.Id, origin: thread.ForkedFrom, people: p,
		starts: map[string]commandStart{}, ends: map[string]commandEnd{},
		builds: map[string]entry.EnvironmentPrepared{}, buildOf: map[string]string{},
		turns: map[string]*turnSeen{}, steps: map[string]bool{}, results: map[string]entry.PiToolResult{}, asked: map[string]string{}, answered: map[string]entry.PermissionAnswered{}, chats: map[string]chatSeen{},
		house: thread.HouseId, environment: thread.EnvironmentId,
	}
}

// rows makes the rows of a piece of the log. tail is the position of the log's last entry: a command whose
// result is not in the piece has ended if the rest of the log has it.
func (t *transcript) rows(ctx context.Context, piece []entry.Entry, tail int64) ([]row, error) {
	t.searches, t.lookups, t.effort = 0, 0, newEffort()
	for _, e := range piece {
		t.learn(e)
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
	if e.Type == (entry.EnvironmentPrepared{}).Type() && t.buildOf[e.ID] == "" {
		if err := t.findOpen(ctx, e.Seq); err != nil {
			return row{}, err
		}
	}
	t.learn(e)
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
		defer func() { t.lastChat = e.ID }()
	}
	if r.Noted || r.Body == nil {
		if r.Body != nil {
			t.lastAt = time.Time{} // because a note parts the rows around it
		}
		return r, nil
	}
	turn := entry.TurnOf(e.ID)
	together := e.Time.Sub(t.lastAt) < joinWithin || turn != "" && turn == t.lastTurn
	r.Joined = t.lastAuthor == e.Author && !t.lastAt.IsZero() && together && (turn == t.lastTurn || turn == "")
	if r.Why = t.reasonOf(e); r.Why != "" {
		r.Joined = false
	}
	r.ForkID = newID()
	t.lastSaid, t.lastAuthor, t.lastAt, t.lastTurn = e.Seq, e.Author, e.Time, turn
	return r, nil
}

// meet finds out who the authors of entries are, and who stopped their commands. It is done for many entries at once, and
// before they are rendered, because a page with an unknown name is an error and an entry that cannot be rendered is none.
func (t *transcript) meet(ctx context.Context, piece ...entry.Entry) error {
	var ids []string
	for _, e := range piece {
		ids = append(ids, e.Author)
		ids = append(ids, agentsOf(e)...)
		if c, ok := entry.As[entry.Chat](e); ok {
			if to, known := t.chats[c.ReplyTo]; known {
				ids = append(ids, to.author)
			}
		}
		if end, ended := t.ends[e.ID]; ended {
			ids = append(ids, end.result.CancelledBy)
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

// learn remembers the halves of commands.
func (t *transcript) learn(e entry.Entry) {
	t.learnTurn(e)
	if c, ok := entry.As[entry.Command](e); ok {
		line := clip(c.Line(), maxWord)
		if _, known := t.starts[e.ID]; !known {
			t.open = append(t.open, e.ID)
		}
		t.starts[e.ID] = commandStart{e.Seq, line, c.SandboxID}
		t.learned += len(line) + perCommand
	}
	if r, ok := entry.As[entry.CommandResult](e); ok {
		t.ends[r.CommandID] = commandEnd{e.Seq, r}
		t.open = slices.DeleteFunc(t.open, func(id string) bool { return id == r.CommandID })
		t.learned += len(e.Payload) + perCommand
	}
	if p, ok := entry.As[entry.EnvironmentPrepared](e); ok && t.buildOf[e.ID] == "" && len(t.open) > 0 {
		t.builds[t.open[0]], t.buildOf[e.ID] = p, t.open[0] // it was built for the oldest one
		t.learned += len(e.Payload) + perCommand
	}
}

// perCommand is about how many bytes remembering a command takes besides its texts.
const perCommand = 512

// forget limits the memory of a transcript that a live tail uses. Otherwise it would grow as long as the page is open.
func (t *transcript) forget() {
	if t.learned > maxLearned {
		clear(t.starts)
		clear(t.ends)
		clear(t.builds)
		clear(t.buildOf)
		clear(t.steps)
		clear(t.results)
		clear(t.asked)
		clear(t.answered)
		clear(t.chats)
		maps.DeleteFunc(t.turns, func(_ string, s *turnSeen) bool { return s.Ended })
		t.open = nil
		t.learned = 0
	}
}

// findStart searches the entries before e for the command or the step that e is the result of.
func (t *transcript) findStart(ctx context.Context, e entry.Entry) error {
	r, ok := entry.As[entry.CommandResult](e)
	_, known := t.starts[r.CommandID]
	start := r.CommandID
	if !ok && e.Type == (entry.PiToolResult{}).Type() {
		start, ok = entry.StepOfResult(e.ID)
		known = t.steps[start]
	}
	if !ok || known || t.searches == maxSearches {
		return nil
	}
	t.searches++
	above, err := t.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
	for _, e := range above {
		if e.ID == start {
			t.learn(e)
		}
	}
	return err
}

// findOpen searches the entries before a position (0 is the end) for commands that have not ended there, unless one is known.
func (t *transcript) findOpen(ctx context.Context, before int64) error {
	if len(t.open) > 0 || t.searches == maxSearches {
		return nil
	}
	t.searches++
	above, err := t.list(ctx, &arbev1.ListRequest{Before: before, Last: before == 0, Limit: searchSize})
	for _, e := range above {
		if e.Type != (entry.EnvironmentPrepared{}).Type() {
			t.learn(e)
		}
	}
	return err
}

// findEnds searches the entries after piece for the results of its commands.
func (t *transcript) findEnds(ctx context.Context, piece []entry.Entry, tail int64) error {
	open := false
	for _, e := range piece {
		if e.Type == (entry.Command{}).Type() {
			_, ended := t.ends[e.ID]
			open = open || !ended
		}
		if p, ok := entry.As[entry.PermissionAsked](e); ok {
			_, ended := t.answered[p.ApprovalID]
			open = open || !ended
		}
		if a, ok := entry.As[entry.PiAssistant](e); ok && a.StopReason == entry.PiToolUse {
			for i := range a.Calls() {
				_, ended := t.results[entry.CallResultID(e.ID, i)]
				open = open || !ended
			}
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
		// That a turn ended later says that its calls have ended, and not that the piece ends there.
		t.learnTurn(e)
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

// clip cuts a text to at most n bytes at the end of a character, and marks the cut with an ellipsis.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
