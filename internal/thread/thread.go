// Package thread keeps the rows of threads: what a thread is (its place, title, tags, recipe, driver) and
// the machine of its status. What happens in a thread is in its log, which package stream keeps.
//
// The rule to remember: a row and the entry that tells of its change are one transaction. Methods whose
// name ends in Tx work inside the caller's.
package thread

import (
	"context"
	"errors"
	"slices"
	"time"

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

// uniqueViolation is the SQLSTATE of a second row where one may be.
const uniqueViolation = "23505"

// Thread is one conversation. Empty fields say that there is none.
type Thread struct {
	ID, House string
	// StreamID names its log.
	StreamID string
	Name     string
	// ParentThread and ParentAgent are where it lives: at most one is set; neither is a root thread.
	ParentThread, ParentAgent string
	// Agent is the bot that drives it; without one it is a chat.
	Agent string
	// Environment is its own recipe, Sandbox the machine it runs on.
	Environment, Sandbox string
	Tags                 []string
	Status               Status
	// PinnedAt is when it was pinned; zero when it is not.
	PinnedAt time.Time
	// Origin is where it was forked from; nil when it is no fork.
	Origin               *Origin
	CreatedAt, UpdatedAt time.Time
	// Tail is the position of its last entry, LastActivity the time of it (its creation when there is none).
	Tail         int64
	LastActivity time.Time
}

// Stream is the reference of the thread's log.
func (t Thread) Stream() stream.Ref { return stream.Ref{House: t.House, Name: t.StreamID} }

// StreamName is the name of a thread's log.
func StreamName(threadID string) string { return "arbe-thread-" + threadID }

// Draft is a thread to be made. All fields are optional.
type Draft struct {
	// ID makes a retry harmless; empty lets the database choose.
	ID                        string
	Name                      string
	ParentThread, ParentAgent string
	Agent, Environment        string
	Tags                      []string
	Pinned                    bool
}

// Threads keeps threads. It is safe for concurrent use.
type Threads struct {
	db  *db.DB
	log *stream.Log
	q   *query.Queries
}

// New makes a Threads over a database and the log in it.
func New(d *db.DB, log *stream.Log) *Threads { return &Threads{db: d, log: log, q: query.New()} }

// Create makes a thread with an empty log in the scope's house. A draft whose ID is taken returns the
// thread that is there, when it is of this house, and a [fault.Exists] otherwise. A reference to what is
// not in this house is a [fault.NotFound] naming the field.
func (t *Threads) Create(ctx context.Context, scope db.Scope, d Draft) (made Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = t.CreateTx(ctx, tx, scope, d)
		return err
	})
	if d.ID != "" && db.State(err) == uniqueViolation { // the same draft, at the same time
		if made, err = t.Get(ctx, scope, d.ID); fault.CodeOf(err) == fault.NotFound {
			return made, idTaken() // by a thread that was deleted, and has forks
		}
	}
	return made, err
}

// CreateTx is [Threads.Create] inside the caller's transaction.
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
	if d.ID == "" {
		if d.ID, err = t.q.NewID(ctx, tx); err != nil {
			return Thread{}, err
		}
	}
	if there, err := t.GetTx(ctx, tx, d.ID); err == nil || fault.CodeOf(err) != fault.NotFound {
		return there, err
	}
	row := query.InsertThreadParams{
		ID: d.ID, HouseID: scope.House, StreamID: StreamName(d.ID), Name: db.Null(name),
		ParentThreadID: db.Null(d.ParentThread), ParentAgentID: db.Null(d.ParentAgent),
		EnvironmentID: db.Null(d.Environment), AgentID: db.Null(d.Agent), Tags: tags, Status: string(first(d.Agent)),
	}
	if d.Pinned {
		row.PinnedAt = db.Null(time.Now())
	}
	if d.ParentAgent != "" { // its foreign key reaches agents of any house
		if _, err := t.q.GetAgent(ctx, tx, d.ParentAgent); errors.Is(err, pgx.ErrNoRows) {
			return Thread{}, noSuch("parent_agent_id")
		} else if err != nil {
			return Thread{}, err
		}
	}
	if err := stream.CreateTx(ctx, tx, stream.Ref{House: scope.House, Name: row.StreamID}); err != nil {
		return Thread{}, err
	}
	return t.insert(ctx, tx, row)
}

// insert writes the row of a thread whose log is there.
func (t *Threads) insert(ctx context.Context, tx pgx.Tx, row query.InsertThreadParams) (Thread, error) {
	if _, err := t.q.InsertThread(ctx, tx, row); errors.Is(err, pgx.ErrNoRows) {
		return Thread{}, idTaken()
	} else if err != nil {
		return Thread{}, explainEdge(err)
	}
	return t.GetTx(ctx, tx, row.ID)
}

func idTaken() *fault.Error {
	return fault.New(fault.Exists, "this thread id is taken", "choose another id, or leave it out")
}

// Get returns one thread, or a [fault.NotFound].
func (t *Threads) Get(ctx context.Context, scope db.Scope, id string) (got Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		got, err = t.GetTx(ctx, tx, id)
		return err
	})
	return got, err
}

// GetTx is [Threads.Get] inside the caller's transaction.
func (t *Threads) GetTx(ctx context.Context, tx pgx.Tx, id string) (Thread, error) {
	row, err := t.q.GetThread(ctx, tx, id)
	return found(row.Thread, row.Tail, row.LastActivity, err)
}

// LockTx is [Threads.GetTx], and holds the row until the transaction ends.
func (t *Threads) LockTx(ctx context.Context, tx pgx.Tx, id string) (Thread, error) {
	row, err := t.q.LockThread(ctx, tx, id)
	return found(row.Thread, row.Tail, row.LastActivity, err)
}

// Filter chooses threads of a list; the zero Filter is the first page of all.
type Filter struct {
	// ParentThread, ForkedFrom, Tag and Status narrow the list; empty is any.
	ParentThread, ForkedFrom, Tag string
	Status                        Status
	// After is the last thread of the page before; its zero value starts at the first page.
	After Cursor
	// Limit is the largest number of threads to return; it must be positive.
	Limit int
}

// Cursor is a place in the order of [Threads.List].
type Cursor struct {
	PinnedAt, LastActivity time.Time
	ID                     string
}

// List returns threads of the scope's house: pinned ones first, the latest pin leading, then by last
// activity, the latest leading. A status that no thread can have is a [fault.Invalid].
func (t *Threads) List(ctx context.Context, scope db.Scope, f Filter) (list []Thread, err error) {
	if f.Status != "" && next[f.Status] == nil {
		return nil, fault.Newf(fault.Invalid, "use open, closed, idle, running, completed, failed or cancelled",
			"status: there is no status %q", f.Status)
	}
	pinned := "-infinity"
	if !f.After.PinnedAt.IsZero() {
		pinned = f.After.PinnedAt.UTC().Format(time.RFC3339Nano)
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := t.q.ListThreads(ctx, tx, query.ListThreadsParams{
			HouseID: scope.House, ParentThreadID: f.ParentThread, ForkedFromID: f.ForkedFrom, Tag: f.Tag, Status: string(f.Status),
			FirstPage: f.After.ID == "", BeforePinned: pinned, BeforeActivity: f.After.LastActivity, BeforeID: f.After.ID,
			MaxRows: int32(f.Limit),
		})
		for _, row := range rows {
			list = append(list, fromRow(row.Thread, row.Tail, row.LastActivity))
		}
		return err
	})
	return list, err
}

// Change says what to change about a thread; nil leaves as it is.
type Change struct {
	// Name and Environment are removed by an empty string.
	Name, Environment *string
	Pinned            *bool
	// Tags replaces all tags.
	Tags *[]string
	// Status closes or opens a chat.
	Status *Status
}

// Update changes a thread and returns it changed. A change of status is told in its log, in the same
// transaction.
func (t *Threads) Update(ctx context.Context, scope db.Scope, id string, c Change) (changed Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := t.LockTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := th.apply(c); err != nil {
			return err
		}
		err = t.q.UpdateThread(ctx, tx, query.UpdateThreadParams{
			ID: id, Name: db.Null(th.Name), PinnedAt: db.Null(th.PinnedAt), Tags: th.Tags, EnvironmentID: db.Null(th.Environment),
		})
		if err != nil {
			return explainEdge(err)
		}
		if c.Status != nil && *c.Status != th.Status {
			if err := t.flip(ctx, tx, th, *c.Status, scope.Agent, ""); err != nil {
				return err
			}
		}
		changed, err = t.GetTx(ctx, tx, id)
		return err
	})
	return changed, err
}

// apply puts the plain fields of a change on the thread.
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
	switch {
	case c.Pinned == nil:
	case !*c.Pinned:
		t.PinnedAt = time.Time{}
	case t.PinnedAt.IsZero():
		t.PinnedAt = time.Now()
	}
	return nil
}

// DeleteTx removes a thread, its log and its children, and returns the sandboxes they were on. Forks of them
// stay whole. A thread that is gone is no error. A house's primary thread stays: that is a [fault.Precondition].
func (t *Threads) DeleteTx(ctx context.Context, tx pgx.Tx, scope db.Scope, id string) (sandboxes []string, err error) {
	house, err := t.q.GetHouse(ctx, tx, scope.House)
	if err != nil {
		return nil, err
	}
	if db.Zero(house.PrimaryThreadID) == id {
		return nil, fault.New(fault.Precondition, "this is the house's own thread", "close it, or delete another one")
	}
	if sandboxes, err = t.q.SandboxesBelow(ctx, tx, id); err != nil {
		return nil, err
	}
	_, err = t.q.DeleteThread(ctx, tx, id)
	return sandboxes, err
}

// RevokeTokens ends all tokens of a thread. A thread that is gone is a [fault.NotFound].
func (t *Threads) RevokeTokens(ctx context.Context, scope db.Scope, id string) error {
	return t.db.In(ctx, scope, func(tx pgx.Tx) error {
		n, err := t.q.RevokeThreadTokens(ctx, tx, id)
		if err == nil && n == 0 {
			return noThread()
		}
		return err
	})
}

// cleanTags tidies tags and drops repeated ones.
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

// explainEdge names the edge that leads to nothing in this house.
func explainEdge(err error) error {
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
	return fault.New(fault.NotFound, field+": there is none with this id in the house", "use an id of the same house, or leave it out")
}

func noThread() error {
	return fault.New(fault.NotFound, "there is no such thread", "list the threads with: arbe thread list")
}

func found(row query.Thread, tail int64, last time.Time, err error) (Thread, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Thread{}, noThread()
	}
	if err != nil {
		return Thread{}, err
	}
	return fromRow(row, tail, last), nil
}

func fromRow(r query.Thread, tail int64, last time.Time) Thread {
	t := Thread{
		ID: r.ID, House: r.HouseID, StreamID: r.StreamID, Name: db.Zero(r.Name),
		ParentThread: db.Zero(r.ParentThreadID), ParentAgent: db.Zero(r.ParentAgentID), Agent: db.Zero(r.AgentID),
		Environment: db.Zero(r.EnvironmentID), Sandbox: db.Zero(r.SandboxID), Tags: r.Tags, Status: Status(r.Status),
		PinnedAt: db.Zero(r.PinnedAt), CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Tail: tail, LastActivity: last,
	}
	if r.ForkedAtSeq != nil {
		t.Origin = &Origin{Thread: db.Zero(r.ForkedFromID), Seq: *r.ForkedAtSeq}
	}
	return t
}
