// Package transcript arranges the entries of a thread for readers: the rows of a page, their contents, and the changes that
// an entry or a piece of live output makes to an open page. It has no HTML except from package markup, and no addresses. Its
// rows are data, which the views of package web render.
//
// A kind of entry is one line in kinds.go. Its contents are a [Body]; each family of bodies has a file: chat.go, command.go,
// turn.go, approval.go and note.go. [Transcript] makes the rows of a piece of the log, and [Live] continues from there.
package transcript

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/markup"
)

// joinWithin is the longest time between two entries of one author that share a head.
const joinWithin = 5 * time.Minute

// Row is one entry as a page shows it.
type Row struct {
	Thread string
	Entry  entry.Entry
	Author Author
	Noted  bool
	// Joined rows have no head of their own and continue the row above.
	Joined bool
	// FirstOfDay is set for the first row of a day, and for the first row of a piece of the log.
	FirstOfDay bool
	// Why says why the turn began. Only the first row of a turn has it.
	Why string
	// Work rows show only tool calls of a bot. Pages can fold consecutive ones.
	Work bool
	// Reactions are the members' reactions to it.
	Reactions []Reaction
	// Body is nil for an entry that is shown elsewhere. The row is then only an anchor.
	Body Body
}

// Reaction is an emoji that members react with.
type Reaction struct {
	Emoji string
	// Agents are the members' ids, and Names their names.
	Agents, Names []string
}

// reactionsTo returns the reactions to an entry. A deleted message has no reactions.
func (k *known) reactionsTo(id string) (list []Reaction) {
	became := k.states[id]
	if became.GetDeleted() {
		return nil
	}
	for _, r := range became.GetReactions() {
		shown := Reaction{Emoji: r.Emoji, Agents: r.AgentIds}
		for _, agent := range r.AgentIds[:min(len(r.AgentIds), maxReactors)] {
			shown.Names = append(shown.Names, k.nameOf(agent))
		}
		list = append(list, shown)
	}
	return list
}

// Source is what a transcript reads from.
type Source struct {
	Log       Log
	Messages  *Messages
	Artifacts Artifacts
	Threads   Threads
	People    People
	// Logger receives the details of entries that cannot be shown.
	Logger *slog.Logger
}

// Transcript makes rows of entries, in the order of the log. A page uses one for all of its entries, and a live page uses one
// until it ends. It is not safe for concurrent use.
type Transcript struct {
	search
	threads Threads
	logger  *slog.Logger

	// lastAuthor, lastTurn, lastAt and lastVia describe the head of the last row that is not a note. lastDay is the day of
	// the last visible row.
	lastAuthor, lastTurn string
	lastAt               time.Time
	lastVia              entry.Via
	lastDay              string
}

// New returns the transcript of a thread.
func New(from Source, thread *arbev1.Thread) *Transcript {
	t := &Transcript{threads: from.Threads, logger: from.Logger}
	t.log, t.messages = from.Log, cmp.Or(from.Messages, &Messages{})
	t.known = &known{
		people: from.People, artifacts: from.Artifacts, thread: thread.Id, origin: thread.ForkedFrom,
		house: thread.HouseId, environment: thread.EnvironmentId,
		driver: thread.AgentId,
		ledger: entry.Ledger{Brief: brief}, unseen: map[string]turn{}, beats: map[string]entry.Heartbeat{}, explained: map[string]bool{},
		states: map[string]*arbev1.EntryState{},
	}
	return t
}

// Unfold shows entries in full.
func (t *Transcript) Unfold() { t.unfolded = true }

// ApplyStates records the edits, deletions and reactions of entries, before their rows are made.
func (t *Transcript) ApplyStates(wire []*arbev1.Entry) { t.applyStates(wire) }

// Rows makes the rows of a piece of the log. tail is the position of the log's last entry. A command whose result is not in
// the piece has ended if the rest of the log has the result.
func (t *Transcript) Rows(ctx context.Context, piece []entry.Entry, tail int64) ([]Row, error) {
	t.begin()
	for _, e := range piece {
		t.ledger.Learn(e)
	}
	if err := t.findEnds(ctx, piece, tail); err != nil {
		return nil, err
	}
	if err := t.meet(ctx, piece...); err != nil {
		return nil, err
	}
	if err := t.findChildren(ctx, piece...); err != nil {
		return nil, err
	}
	rows := make([]Row, 0, len(piece))
	for _, e := range piece {
		if err := ctx.Err(); err != nil {
			return nil, err // the reader left, so nobody gets this page
		}
		r, err := t.row(ctx, e)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// begin begins a piece of the log: its budgets for formatting, searches and lookups.
func (t *Transcript) begin() {
	t.searches, t.lookups, t.effort, t.children = 0, 0, markup.NewEffort(), nil
	t.effort.Mentions = markup.Mentions{Find: entry.MentionsIn, Address: t.people.Address}
}

// row makes the row of the next entry.
func (t *Transcript) row(ctx context.Context, e entry.Entry) (Row, error) {
	if _, placed := t.ledger.Placed(e.ID); !placed && updatesOldest(e) {
		if err := t.findOpen(ctx, e.Seq); err != nil {
			return Row{}, err
		}
	}
	t.ledger.Learn(e)
	if err := t.findStart(ctx, e); err != nil {
		return Row{}, err
	}
	if err := t.meet(ctx, e); err != nil {
		return Row{}, err
	}
	if err := t.findChildren(ctx, e); err != nil {
		return Row{}, err
	}
	k := kindOf(e)
	r := Row{Thread: t.thread, Entry: e, Author: t.people.ByID(e.Author), Noted: k.shape == noted, Body: t.body(ctx, k, e), Reactions: t.reactionsTo(e.ID)}
	r.Work = isWork(e, r.Body)
	if day := e.Time.UTC().Format(time.DateOnly); r.Body != nil && day != t.lastDay {
		r.FirstOfDay, t.lastDay = true, day
	}
	if c, ok := entry.As[entry.Chat](e); ok && c.Turn == nil {
		t.lastChat = e.ID
	}
	switch {
	case r.Body == nil:
	case r.Noted:
		t.lastAt = time.Time{} // a note separates the rows around it
	default:
		t.head(&r)
	}
	return r, nil
}

// body returns the contents of a row. If that fails, it shows the payload as stored, because one entry must not make the
// whole page fail.
func (t *Transcript) body(ctx context.Context, k kind, e entry.Entry) (b Body) {
	err := guard.Run(func() error {
		b = k.body(ctx, t.known, e)
		return nil
	})
	if err != nil {
		t.logger.ErrorContext(ctx, "web: an entry cannot be rendered", "thread", t.thread, "seq", e.Seq, "type", e.Type, "error", err)
		return AsStored(e)
	}
	return b
}

// head decides whether a row has its own head or continues the row above.
func (t *Transcript) head(r *Row) {
	e := r.Entry
	turn := entry.AnswerOf(e.ID)
	together := e.Time.Sub(t.lastAt) < joinWithin || turn != "" && turn == t.lastTurn
	via := entry.ViaOf(e)
	r.Joined = t.lastAuthor == e.Author && !t.lastAt.IsZero() && together && (turn == t.lastTurn || turn == "") && via == t.lastVia
	if r.Why = t.reasonOf(e); r.Why != "" {
		r.Joined = false
	}
	t.lastSaid, t.lastAuthor, t.lastAt, t.lastTurn, t.lastVia = e.Seq, e.Author, e.Time, turn, via
}

// meet looks up the agents whom entries name. It does so for many entries at once, before they are shown. If it cannot look
// up a name, the page fails. An entry that cannot be shown does not make the page fail.
func (t *Transcript) meet(ctx context.Context, piece ...entry.Entry) error {
	ids := []string{t.driver}
	for _, e := range piece {
		ids = append(ids, e.Author)
		ids = append(ids, entry.Agents(e)...)
		if c, ok := entry.As[entry.Chat](e); ok {
			if to := t.chat(c.ReplyTo); to != nil {
				ids = append(ids, to.Author)
			}
		}
		for _, r := range t.states[e.ID].GetReactions() {
			ids = append(ids, r.AgentIds[:min(len(r.AgentIds), maxReactors)]...)
		}
		if result, _, ended := t.ended(e.ID); ended {
			ids = append(ids, result.CancelledBy)
		}
	}
	return t.people.Meet(ctx, ids...)
}

// maxReactors limits how many of the members who react with an emoji are looked up.
const maxReactors = 50

// maxChildren limits the children of a thread that are looked up for a piece of its log at once. Some of the others are
// looked up one by one. The state of the rest is not shown.
const maxChildren = 200

// findChildren looks up the threads of delegated tasks, all at once for a piece of the log.
func (t *Transcript) findChildren(ctx context.Context, piece ...entry.Entry) error {
	var ids []string
	for _, e := range piece {
		if s, ok := entry.As[entry.AgentSpawn](e); ok {
			if _, found := t.children[s.ChildThreadID]; !found {
				ids = append(ids, s.ChildThreadID)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found := map[string]*arbev1.Thread{}
	if len(ids) > 1 {
		res, err := t.threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: t.house, ParentThreadId: t.thread, PageSize: maxChildren})
		if err != nil {
			return err
		}
		for _, child := range res.Threads {
			found[child.Id] = child
		}
	}
	for _, id := range ids {
		if found[id] == nil && t.lookups < maxLookups && len(id) <= MaxWord {
			t.lookups++
			res, err := t.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: id})
			switch connect.CodeOf(err) {
			case connect.CodeNotFound, connect.CodePermissionDenied, connect.CodeInvalidArgument:
			default:
				if err != nil {
					return err
				}
			}
			if found[id] = res.GetThread(); found[id].GetHouseId() != t.house {
				found[id] = nil // the entry may name any thread
			}
		}
	}
	if t.children == nil {
		t.children = map[string]*arbev1.Thread{}
	}
	for _, id := range ids {
		if child, looked := found[id]; looked {
			t.children[id] = child
		}
	}
	return nil
}

// AtWork returns the turns and runs in progress, oldest first, including those that the row of the thread names.
func (t *Transcript) AtWork(ctx context.Context, thread *arbev1.Thread) (list []TurnAtWork, err error) {
	t.learnRunning(thread)
	for _, turn := range t.turnsAtWork() {
		if err := t.people.Meet(ctx, turn.Agent); err != nil {
			return nil, err
		}
		list = append(list, t.workOf(turn, nil))
	}
	return list, nil
}

// LastOf returns the position of the last entry that a page shows together with e: the result if e is a command that has
// ended, and otherwise e.
func (t *Transcript) LastOf(ctx context.Context, e entry.Entry) (int64, error) {
	if err := t.findEnds(ctx, []entry.Entry{e}, endOfLog); err != nil {
		return 0, err
	}
	_, end, _ := t.ended(e.ID)
	return max(e.Seq, end), nil
}
