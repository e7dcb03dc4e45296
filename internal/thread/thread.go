// Package thread manages the rows of threads: parent, title, tags, environment, driver and status. A thread's history
// is in its log, which package stream keeps.
//
// The rule to remember: a row and the entry that records its change are written in one transaction, so that neither is
// ever there without the other. Methods whose names end in Tx work in the caller's transaction.
package thread

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"cmp"

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

// Status is the current state of a thread. It is an index over the log, which has the full report.
// Its values depend on whether a bot drives the thread.
//
//	chat:    open ⇄ closed
//	driven:  idle → running → completed | failed | cancelled → running …
type Status string

// The statuses of a chat, and those of a thread that a bot drives.
const (
	Open   Status = "open"
	Closed Status = "closed"

	Idle      Status = "idle"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
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
	// Model is the model of the bots that work in it, as provider/model, and Think how hard it thinks. Empty means the
	// setting of each bot.
	Model  string
	Think  entry.Effort
	Tags   []string
	Status Status
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

// Origin is the point that a thread was forked from.
type Origin struct {
	// Thread is the source; empty after it was deleted.
	Thread string
	// Seq is the position of the last entry that both threads share. It is 0 if they share no entry.
	Seq int64
}

// Run describes the last run of a driven thread, as recorded in its row. The log has the full report.
type Run struct {
	// Epoch counts the runs of the thread; 0 before the first one.
	Epoch     int64
	StartedAt time.Time
	// HeartbeatAt is the time of its runner's last heartbeat; zero before the first.
	HeartbeatAt time.Time
	// From is the position of the end of the log when it began or, once it has ended, when it ended. Through is the
	// last chat that the agent has received, in this run or an earlier one, as reported by the runners.
	From, Through int64
	// Entries is the number of entries that it has written, and Bytes their size, as of its last heartbeat.
	Entries, Bytes int64
	// EndedAt is when it ended; zero before that. Result is the beginning of its agent's last text, or of the reason
	// for its failure.
	EndedAt time.Time
	Result  string
	// Doing says in a few words what its runner was doing at the last heartbeat. Tool is the tool that it called
	// last.
	Doing, Tool string
	// CostMicros is the cost of its model calls as of that heartbeat, or of its end, in millionths of a US dollar.
	// CostUnknown means that some calls are not counted, because their model has no known price.
	CostMicros  int64
	CostUnknown bool
	// Overdue means that its delegator was told that it takes too long. Its end wakes no bot.
	Overdue bool
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
	// Forks means that its log begins with that of ParentThread, as the log of a fork does; see [Threads.Fork]. The
	// caller has locked that thread.
	Forks  bool
	Tags   []string
	Pinned bool
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
	_, err = t.q.DropThread(ctx, tx, id)
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

// explainReference turns a foreign key violation into an error that names the field, because only the constraint's
// name says which reference is wrong.
func explainReference(err error) error {
	for constraint, field := range map[string]string{
		"threads_house_id_agent_id_fkey":         "agent_id",
		"threads_house_id_environment_id_fkey":   "environment_id",
		"threads_house_id_parent_thread_id_fkey": "parent_thread_id",
		"threads_parent_agent_id_fkey":           "parent_agent_id",
		"threads_house_id_sandbox_id_fkey":       "sandbox",
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

func idTaken() *fault.Error {
	return fault.New(fault.Exists, "this thread id is already used", "choose another id, or leave it out").WithReason(fault.IDTaken)
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
	t.People, t.Model, t.Think = r.People, r.Model, entry.Effort(r.Think)
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

// Cursor is a position in the order of [Threads.List]. The zero Cursor is before the first thread.
type Cursor struct {
	PinnedAt, ActiveAt time.Time
	ID                 string
}

// Compare returns a negative number if c comes before d in the order of [Threads.List], and 0 if they are equal.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(d.PinnedAt.Compare(c.PinnedAt), d.ActiveAt.Compare(c.ActiveAt), cmp.Compare(d.ID, c.ID))
}
