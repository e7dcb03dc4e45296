// Package thread manages the rows of threads: parent, title, tags, environment, driver and status. A thread's history
// is in its log, which package stream keeps.
//
// The rule to remember: a row and the entry that records its change are written in one transaction, so that neither is
// ever there without the other. Methods whose names end in Tx work in the caller's transaction.
package thread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// MaxName is the longest title of a thread, in characters; MaxTag the longest tag.
const (
	MaxName = 200
	MaxTag  = 100
)

// Thread is one conversation. An empty field means that there is none.
type Thread struct {
	ID, House string
	// StreamID is the name of its log.
	StreamID string
	Name     string
	// ParentThread and ParentAgent are its parent. At most one is set; a root thread has neither.
	ParentThread, ParentAgent string
	// People are the people for whom it is listed, if it is a direct message; empty for a thread that is listed for
	// the whole house. Anyone in the house who has its id may read it anyway.
	People []string
	// Agent is the bot that drives it; empty for a chat.
	Agent string
	// Answering is the bot that answers messages that mention nobody; empty for none. Settled means that the first
	// message or a person has decided this.
	Answering string
	Settled   bool
	// AskedBy is the agent that delegated it; empty for a thread that was not delegated. Root is the person's entry
	// that made a bot create it; empty if no bot did.
	AskedBy, Root string
	// Run is the last run of that bot.
	Run Run
	// Environment is its own environment, and Sandbox the sandbox that it runs on.
	Environment, Sandbox string
	Tags                 []string
	Status               Status
	// PinnedAt is when it was pinned; zero if it is not.
	PinnedAt time.Time
	// Origin is the point that it was forked from; nil if it is not a fork.
	Origin               *Origin
	CreatedAt, UpdatedAt time.Time
	// Tail is the position of its last entry, and LastActivity the time of that entry, or of its creation if it has
	// none.
	Tail         int64
	LastActivity time.Time
	// ActiveAt is its place in the order of [Threads.List]. It follows LastActivity within about a second, because an
	// append to the log does not wait for an update of the row.
	ActiveAt time.Time
	// LastSaid is its last chat or command; nil if there is none. Running is the oldest of its commands and turns that
	// have not ended; nil if there is none. Both follow the log within about a second, as ActiveAt does.
	LastSaid *Said
	Running  *Work
	// OpenApprovals is the number of tool calls that wait for a person's approval in it. It follows the log, too.
	OpenApprovals int
}

// Said is a chat or command as a list shows it.
type Said struct {
	// Author is the agent who said it and AuthorName their name, which is empty if they left.
	Author, AuthorName string
	// Text is the beginning of it: one line of at most 160 characters. A command begins with "$ ".
	Text string
}

// Work is a command, or a bot's turn, that is running or waiting to run.
type Work struct {
	// Command is the id of the command's entry; empty for a turn.
	Command string
	// Turn is the turn's id, Agent its bot and AgentName the bot's name, which is empty if it left; all are empty for a
	// command.
	Turn, Agent, AgentName string
	// Since is when it was requested, or when the turn began.
	Since time.Time
}

// Cursor returns the thread's position in the order of [Threads.List].
func (t Thread) Cursor() Cursor { return Cursor{PinnedAt: t.PinnedAt, ActiveAt: t.ActiveAt, ID: t.ID} }

// Stream returns the reference of the thread's log.
func (t Thread) Stream() stream.Ref { return stream.Ref{House: t.House, Name: t.StreamID} }

// StreamName returns the name of a thread's log.
func StreamName(threadID string) string { return "arbe-thread-" + threadID }

// Draft describes a thread to create. All fields are optional.
type Draft struct {
	// ID makes a retry harmless, because within a house it always stands for the same thread. It is not the thread's
	// id, which is unique among all houses. If it is empty, each call creates another thread.
	ID string
	// Name defaults to the name of the ParentAgent. A direct message is then renamed after its first message.
	Name                      string
	ParentThread, ParentAgent string
	Agent, Environment        string
	// AskedBy is the agent that delegates it to Agent.
	AskedBy string
	Tags    []string
	Pinned  bool
	// Root is the person's entry that made a bot create it, and RootMost limits the threads with this root; a further
	// one is a [fault.Exhausted]. Root defaults to "": no bot creates it.
	Root     string
	RootMost int
}

// Threads manages threads. It is safe for concurrent use.
type Threads struct {
	db  *db.DB
	log *stream.Log
	q   *query.Queries
}

// New returns a Threads for a database and the log in it.
func New(d *db.DB, log *stream.Log) *Threads { return &Threads{db: d, log: log, q: query.New()} }

// Create creates a thread with an empty log in the scope's house. If the draft's ID was already used in the house, it
// returns the existing thread; if that thread was deleted but has forks, the error is a [fault.Exists]. A reference to
// something that is not in this house is a [fault.NotFound] that names the field.
func (t *Threads) Create(ctx context.Context, scope db.Scope, d Draft) (made Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = t.CreateTx(ctx, tx, scope, d)
		return err
	})
	// A concurrent call with the same ID has created it since. It can be read only now, because the violation has
	// aborted the transaction.
	if d.ID != "" && db.State(err) == pgerrcode.UniqueViolation {
		if made, err = t.Get(ctx, scope, db.IDFor(scope.House, d.ID)); fault.CodeOf(err) == fault.NotFound {
			return made, idTaken() // by a deleted thread that has forks
		}
	}
	return made, err
}

// CreateTx is [Threads.Create] in the caller's transaction.
func (t *Threads) CreateTx(ctx context.Context, tx pgx.Tx, scope db.Scope, d Draft) (Thread, error) {
	if d.ParentThread != "" && d.ParentAgent != "" {
		return Thread{}, fault.New(fault.Invalid, "a thread has at most one parent", "name a thread or an agent, not both")
	}
	name, err := entry.Name("name", d.Name, MaxName)
	if err != nil {
		return Thread{}, err
	}
	tags, err := cleanTags(d.Tags)
	if err != nil {
		return Thread{}, err
	}
	if d.ID, err = t.newID(ctx, tx, scope.House, d.ID); err != nil {
		return Thread{}, err
	}
	if there, err := t.GetTx(ctx, tx, d.ID); err == nil || fault.CodeOf(err) != fault.NotFound {
		return there, err
	}
	if err := t.boundRootTx(ctx, tx, scope.House, d); err != nil {
		return Thread{}, err
	}
	row := query.InsertThreadParams{
		ID: d.ID, HouseID: scope.House, StreamID: StreamName(d.ID), Name: db.Null(name),
		ParentThreadID: db.Null(d.ParentThread), ParentAgentID: db.Null(d.ParentAgent),
		EnvironmentID: db.Null(d.Environment), AgentID: db.Null(d.Agent), Tags: tags, Status: string(initialStatus(d.Agent)), Root: db.Null(d.Root),
		AskedBy: db.Null(d.AskedBy),
	}
	if d.Pinned {
		row.PinnedAt = db.Null(time.Now())
	}
	if d.ParentAgent != "" { // checked here, because the foreign key would accept agents of any house
		agent, err := t.q.NameOfAgent(ctx, tx, d.ParentAgent)
		if errors.Is(err, pgx.ErrNoRows) {
			return Thread{}, noSuch("parent_agent_id")
		} else if err != nil {
			return Thread{}, err
		}
		if name == "" { // so that lists show the other side's name
			row.Name = db.Null(agent)
		}
	}
	if row.People, err = t.peopleTx(ctx, tx, scope, d); err != nil {
		return Thread{}, err
	}
	if err := stream.CreateTx(ctx, tx, stream.Ref{House: scope.House, Name: row.StreamID}); err != nil {
		return Thread{}, err
	}
	return t.insert(ctx, tx, row)
}

// boundRootTx returns a [fault.Exhausted] if the draft would exceed its root's limit of threads.
func (t *Threads) boundRootTx(ctx context.Context, tx pgx.Tx, house string, d Draft) error {
	if d.Root == "" {
		return nil
	}
	if err := t.q.LockThreadsOfRoot(ctx, tx, house, d.Root); err != nil {
		return err
	}
	n, err := t.q.ThreadsOfRoot(ctx, tx, house, &d.Root)
	if err == nil && n >= int64(d.RootMost) {
		err = fault.Newf(fault.Exhausted, "use the threads that there are, or say in your answer what is left to do, so that a person can ask for it",
			"bots have created %d threads because of one message of a person, and may create no more", n).WithReason(fault.LimitReached)
	}
	return err
}

// newID returns a new thread id, or the id that the caller's chosen ID stands for; see [db.IDFor].
func (t *Threads) newID(ctx context.Context, tx pgx.Tx, house, chosen string) (string, error) {
	if chosen == "" {
		return t.q.NewID(ctx, tx)
	}
	return db.IDFor(house, chosen), nil
}

// insert writes the row of a thread whose log exists, because the row refers to the log.
func (t *Threads) insert(ctx context.Context, tx pgx.Tx, row query.InsertThreadParams) (Thread, error) {
	if _, err := t.q.InsertThread(ctx, tx, row); errors.Is(err, pgx.ErrNoRows) {
		return Thread{}, idTaken()
	} else if err != nil {
		return Thread{}, explainReference(err)
	}
	return t.GetTx(ctx, tx, row.ID)
}

func idTaken() *fault.Error {
	return fault.New(fault.Exists, "this thread id is already used", "choose another id, or leave it out").WithReason(fault.IDTaken)
}

// Get returns one thread, or a [fault.NotFound].
func (t *Threads) Get(ctx context.Context, scope db.Scope, id string) (got Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		got, err = t.GetTx(ctx, tx, id)
		return err
	})
	return got, err
}

// GetTx is [Threads.Get] in the caller's transaction.
func (t *Threads) GetTx(ctx context.Context, tx pgx.Tx, id string) (Thread, error) {
	row, err := t.q.GetThread(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Thread{}, noThread()
	} else if err != nil {
		return Thread{}, err
	}
	return fromRow(row), nil
}

// LockTx is [Threads.GetTx] and locks the row until the transaction ends, so that a change can rely on what it read.
func (t *Threads) LockTx(ctx context.Context, tx pgx.Tx, id string) (Thread, error) {
	if err := t.q.LockThread(ctx, tx, id); err != nil {
		return Thread{}, err
	}
	return t.GetTx(ctx, tx, id)
}

// MinPrefix is how many characters of an id are enough to look for it. A shorter prefix would match many threads.
const MinPrefix = 4

// Filter selects threads for a list. The zero Filter selects all, but see Limit.
type Filter struct {
	// Shared leaves out direct messages. Those of other people than the scope's agent are never listed.
	Shared bool
	// ParentThread, ForkedFrom, Tag and Status restrict the list; an empty one does not.
	ParentThread, ForkedFrom, Tag string
	Status                        Status
	// Match selects the threads whose id begins with it, if it has at least [MinPrefix] characters, and those with this
	// name. It must not be combined with another filter or a cursor, because its result has a single page.
	Match string
	// After is the last thread of the previous page. Its zero value selects the first page.
	After Cursor
	// Limit is the largest number of threads to return; it must be positive.
	Limit int
}

// Cursor is a position in the order of [Threads.List]. The zero Cursor is before the first thread.
type Cursor struct {
	PinnedAt, ActiveAt time.Time
	ID                 string
}

// Compare returns a negative number if c comes before d in the order of [Threads.List], and 0 if they are equal.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(d.PinnedAt.Compare(c.PinnedAt), d.ActiveAt.Compare(c.ActiveAt), cmp.Compare(d.ID, c.ID))
}

// List returns threads of the scope's house: pinned ones first, most recently pinned first, then by last activity,
// latest first. An unknown status is a [fault.Invalid].
func (t *Threads) List(ctx context.Context, scope db.Scope, f Filter) (list []Thread, err error) {
	if f.Status != "" && transitions[f.Status] == nil {
		return nil, fault.Newf(fault.Invalid, "use open, closed, idle, running, completed, failed or cancelled",
			"status: %q is not a status", f.Status)
	}
	after := query.ListThreadsParams{HouseID: scope.House, BeforePinned: "infinity", BeforeActivity: "infinity", MaxRows: int32(f.Limit), Shared: f.Shared}
	if f.After.ID != "" {
		after.BeforePinned, after.BeforeActivity, after.BeforeID = "-infinity", f.After.ActiveAt.UTC().Format(time.RFC3339Nano), f.After.ID
		if !f.After.PinnedAt.IsZero() {
			after.BeforePinned = f.After.PinnedAt.UTC().Format(time.RFC3339Nano)
		}
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		list, err = t.listTx(ctx, tx, f, after)
		return err
	})
	return list, err
}

// listTx uses the query that fits the filter. The unfiltered list has its own, because with filters in it Postgres would
// not read the page from the index that has its order.
func (t *Threads) listTx(ctx context.Context, tx pgx.Tx, f Filter, after query.ListThreadsParams) (list []Thread, err error) {
	if f.Match != "" {
		return t.matchTx(ctx, tx, f, after.HouseID)
	}
	switch narrow := (Filter{ParentThread: f.ParentThread, Tag: f.Tag, Status: f.Status}); {
	case narrow != Filter{}:
		rows, err := t.q.FilterThreads(ctx, tx, query.FilterThreadsParams{
			HouseID: after.HouseID, ParentThreadID: f.ParentThread, ForkedFromID: f.ForkedFrom, Tag: f.Tag, Status: string(f.Status),
			BeforePinned: after.BeforePinned, BeforeActivity: after.BeforeActivity, BeforeID: after.BeforeID, MaxRows: after.MaxRows,
			Shared: f.Shared,
		})
		return fromRows(rows), err
	case f.ForkedFrom != "":
		rows, err := t.q.ListForks(ctx, tx, query.ListForksParams{ForkedFromID: f.ForkedFrom,
			BeforePinned: after.BeforePinned, BeforeActivity: after.BeforeActivity, BeforeID: after.BeforeID, MaxRows: after.MaxRows})
		return fromRows(rows), err
	}
	rows, err := t.q.ListThreads(ctx, tx, after)
	return fromRows(rows), err
}

// matchTx returns the threads of a house that a filter's Match finds.
func (t *Threads) matchTx(ctx context.Context, tx pgx.Tx, f Filter, house string) (list []Thread, err error) {
	if alone := (Filter{Match: f.Match, Limit: f.Limit}); f != alone {
		return nil, fault.New(fault.Invalid, "match is used with another filter or a page_token", "leave out the others")
	}
	prefix := ""
	if len(f.Match) >= MinPrefix {
		prefix = f.Match
	}
	ids, err := t.q.MatchThreads(ctx, tx, query.MatchThreadsParams{HouseID: house, Prefix: prefix, Name: f.Match, MaxRows: int32(f.Limit)})
	if err != nil {
		return nil, err
	}
	rows, err := t.q.SomeThreads(ctx, tx, ids)
	list = fromRows(rows)
	slices.SortFunc(list, func(a, b Thread) int { return a.Cursor().Compare(b.Cursor()) })
	return list[:min(len(list), f.Limit)], err
}

// ByIDs returns those of the given threads that are in the scope's house, in any order.
func (t *Threads) ByIDs(ctx context.Context, scope db.Scope, ids []string) (some []Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := t.q.SomeThreads(ctx, tx, ids)
		some = fromRows(rows)
		return err
	})
	return some, err
}

// WithForks returns those of the given threads of the scope's house that have forks, in any order.
func (t *Threads) WithForks(ctx context.Context, scope db.Scope, ids []string) (forked []string, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		forked, err = t.q.ForkedThreads(ctx, tx, ids)
		return err
	})
	return forked, err
}

// WithChildren returns those of the given threads of the scope's house that have children, in any order.
func (t *Threads) WithChildren(ctx context.Context, scope db.Scope, ids []string) (parents []string, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		parents, err = t.q.ParentThreads(ctx, tx, ids)
		return err
	})
	return parents, err
}

// Change describes a change of a thread. Nil fields are left unchanged.
type Change struct {
	// Name and Environment are removed by an empty string.
	Name, Environment *string
	Pinned            *bool
	// Tags replaces all tags.
	Tags *[]string
	// Answering is the bot that answers without being mentioned; empty for none.
	Answering *string
	// Status closes or reopens a chat.
	Status *Status
}

// Update changes a thread and returns it. It records a change of status in the log, in the same transaction.
func (t *Threads) Update(ctx context.Context, scope db.Scope, id string, c Change) (changed Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := t.LockTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := th.apply(c); err != nil {
			return err
		}
		if err := t.checkAnswering(ctx, tx, scope.House, db.Zero(c.Answering)); err != nil {
			return err
		}
		err = t.q.UpdateThread(ctx, tx, query.UpdateThreadParams{
			ID: id, Name: db.Null(th.Name), PinnedAt: db.Null(th.PinnedAt), Tags: th.Tags, EnvironmentID: db.Null(th.Environment),
			AnsweringAgentID: db.Null(th.Answering), AnsweringDecided: th.Settled,
		})
		if err != nil {
			return explainReference(err)
		}
		if c.Status != nil && *c.Status != th.Status {
			if err := t.changeStatus(ctx, tx, th, *c.Status, scope.Agent, entry.StatusChanged{}); err != nil {
				return err
			}
		}
		changed, err = t.GetTx(ctx, tx, id)
		return err
	})
	return changed, err
}

// BeginWithTx records that a thread begins with a bot. The bot then answers in it without being mentioned, unless a
// person has already decided this. It changes nothing in the house's own thread, a driven thread, a fork or a direct
// message.
func (t *Threads) BeginWithTx(ctx context.Context, tx pgx.Tx, id, bot string) error {
	return t.q.SettleAnswering(ctx, tx, bot, id)
}

// checkAnswering checks that an agent is a bot of the house that answers in threads. "" means none and is valid.
func (t *Threads) checkAnswering(ctx context.Context, tx pgx.Tx, house, agent string) error {
	if agent == "" {
		return nil
	}
	may, err := t.q.TakesTurns(ctx, tx, house, agent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.NotFound, "answering_agent_id: the house has no bot with this id", "use the id of one of its bots, or an empty string for none")
	case err == nil && !may:
		return fault.New(fault.Invalid, "answering_agent_id: this bot is a coding agent, which works on tasks in a thread of its own", "choose another bot, or give it a task with: /delegate, its @handle, and the task")
	}
	return err
}

// apply applies the plain fields of a change.
func (t *Thread) apply(c Change) (err error) {
	if c.Name != nil {
		if t.Name, err = entry.Name("name", *c.Name, MaxName); err != nil {
			return err
		}
	}
	if c.Tags != nil {
		if t.Tags, err = cleanTags(*c.Tags); err != nil {
			return err
		}
	}
	if c.Environment != nil {
		t.Environment = *c.Environment
	}
	if c.Answering != nil {
		if t.Agent != "" {
			return fault.New(fault.Precondition, "what is said in this thread is said to the coding agent that drives it", "mention a bot to ask it")
		}
		t.Answering, t.Settled = *c.Answering, true
	}
	switch {
	case c.Pinned == nil:
	case !*c.Pinned:
		t.PinnedAt = time.Time{}
	case t.PinnedAt.IsZero():
		t.PinnedAt = time.Now()
	}
	return nil
}

// DeleteTx deletes a thread, its log and its children, and returns the sandboxes they were on, so that the caller can
// delete those that no thread needs. Their forks stay complete. Deleting a thread that does not exist is no error,
// because the call may be a retry. A house's primary thread cannot be deleted: [fault.Precondition].
func (t *Threads) DeleteTx(ctx context.Context, tx pgx.Tx, id string) (sandboxes []string, err error) {
	primary, err := t.q.IsPrimaryThread(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if primary {
		return nil, fault.New(fault.Precondition, "this is the primary thread of the house", "close it, or delete another thread")
	}
	if sandboxes, err = t.q.SandboxesBelow(ctx, tx, id); err != nil {
		return nil, err
	}
	_, err = t.q.DeleteThread(ctx, tx, id)
	return sandboxes, err
}

// RevokeTokens revokes all tokens of a thread. The error is a [fault.NotFound] if there is no such thread.
func (t *Threads) RevokeTokens(ctx context.Context, scope db.Scope, id string) error {
	return t.db.In(ctx, scope, func(tx pgx.Tx) error {
		n, err := t.q.RevokeThreadTokens(ctx, tx, id)
		if err == nil && n == 0 {
			return noThread()
		}
		return err
	})
}

// cleanTags trims tags, and removes empty ones and duplicates. The result is never nil, because the column is not null.
func cleanTags(tags []string) ([]string, error) {
	clean := []string{}
	for _, tag := range tags {
		tag, err := entry.Name("tags", tag, MaxTag)
		if err != nil {
			return nil, err
		}
		if tag != "" && !slices.Contains(clean, tag) {
			clean = append(clean, tag)
		}
	}
	return clean, nil
}

// explainReference turns a foreign key violation into an error that names the field, because only the constraint's
// name says which reference is wrong.
func explainReference(err error) error {
	for constraint, field := range map[string]string{
		"threads_house_id_agent_id_fkey":         "agent_id",
		"threads_house_id_environment_id_fkey":   "environment_id",
		"threads_house_id_parent_thread_id_fkey": "parent_thread_id",
		"threads_parent_agent_id_fkey":           "parent_agent_id",
	} {
		if db.Violates(err, constraint) {
			return noSuch(field).Because(err)
		}
	}
	return err
}

func noSuch(field string) *fault.Error {
	return fault.New(fault.NotFound, field+": the house has none with this id", "use an id of the same house, or leave it out")
}

func noThread() error {
	return fault.New(fault.NotFound, "there is no such thread", "list the threads with: arbe thread list")
}

func fromRows(rows []query.ThreadHead) (list []Thread) {
	for _, row := range rows {
		list = append(list, fromRow(row))
	}
	return list
}

func fromRow(r query.ThreadHead) Thread {
	t := Thread{
		ID: r.ID, House: r.HouseID, StreamID: r.StreamID, Name: db.Zero(r.Name),
		ParentThread: db.Zero(r.ParentThreadID), ParentAgent: db.Zero(r.ParentAgentID), Agent: db.Zero(r.AgentID),
		Environment: db.Zero(r.EnvironmentID), Sandbox: db.Zero(r.SandboxID), Tags: r.Tags, Status: Status(r.Status),
		PinnedAt: db.Zero(r.PinnedAt), CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Tail: r.Tail, LastActivity: r.LastActivity,
		ActiveAt: r.ActiveAt, OpenApprovals: int(r.Approvals),
	}
	t.Answering, t.Settled = db.Zero(r.AnsweringAgentID), r.AnsweringDecided
	t.People = r.People
	t.AskedBy, t.Root = db.Zero(r.AskedBy), db.Zero(r.Root)
	t.Run = Run{
		Epoch: r.RunEpoch, StartedAt: db.Zero(r.RunStartedAt), HeartbeatAt: db.Zero(r.HeartbeatAt), From: r.RunFrom, Through: r.RunThrough, Entries: r.RunEntries, Bytes: r.RunBytes,
		EndedAt: db.Zero(r.RunEndedAt), Result: db.Zero(r.RunResult), Doing: db.Zero(r.RunDoing), Tool: db.Zero(r.RunTool), CostMicros: r.RunCost, CostUnknown: r.RunCostUnknown, Overdue: r.Overdue,
	}
	if r.LastSaid != nil {
		t.LastSaid = &Said{Author: db.Zero(r.LastSaidBy), AuthorName: r.LastSaidName, Text: *r.LastSaid}
	}
	if r.RunningID != nil {
		t.Running = &Work{Command: *r.RunningID, Since: db.Zero(r.RunningSince)}
		if r.RunningAgent != nil {
			t.Running = &Work{Turn: *r.RunningID, Agent: *r.RunningAgent, AgentName: r.RunningName, Since: t.Running.Since}
		}
	}
	if r.ForkedAtSeq != nil {
		t.Origin = &Origin{Thread: db.Zero(r.ForkedFromID), Seq: *r.ForkedAtSeq}
	}
	return t
}

// OnSandboxTx returns the ids of the threads on a sandbox.
func (t *Threads) OnSandboxTx(ctx context.Context, tx pgx.Tx, sandbox string) ([]string, error) {
	return t.q.ThreadsOnSandbox(ctx, tx, sandbox)
}

// RunningOnSandboxTx reports whether a thread on a sandbox runs.
func (t *Threads) RunningOnSandboxTx(ctx context.Context, tx pgx.Tx, sandbox string) (bool, error) {
	return t.q.RunningOnSandbox(ctx, tx, sandbox)
}

// PutOnSandboxTx assigns a thread to a sandbox of its house.
func (t *Threads) PutOnSandboxTx(ctx context.Context, tx pgx.Tx, id, sandbox string) error {
	return t.q.SetThreadSandbox(ctx, tx, &sandbox, id)
}

// MoveSandboxTx moves every thread on one sandbox of the house to another sandbox, and returns their logs in the order
// in which logs are always locked, so that two such transactions cannot deadlock.
func (t *Threads) MoveSandboxTx(ctx context.Context, tx pgx.Tx, house, from, to string) ([]stream.Ref, error) {
	moved, err := t.q.RepointThreads(ctx, tx, to, house, from)
	return refs(house, moved), err
}

// MoveThreadTx is [Threads.MoveSandboxTx] for one thread. It returns no log if the thread is not on the first sandbox.
func (t *Threads) MoveThreadTx(ctx context.Context, tx pgx.Tx, house, id, from, to string) ([]stream.Ref, error) {
	moved, err := t.q.RepointThread(ctx, tx, to, id, from)
	return refs(house, moved), err
}

// refs returns logs in the order in which they are always locked.
func refs(house string, names []string) []stream.Ref {
	slices.Sort(names)
	logs := make([]stream.Ref, len(names))
	for i, name := range names {
		logs[i] = stream.Ref{House: house, Name: name}
	}
	return logs
}
