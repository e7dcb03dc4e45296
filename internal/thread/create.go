package thread

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"slices"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

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
	row := d.row(scope.House, name, tags)
	if d.ParentAgent != "" {
		if err := t.nameAfterParentTx(ctx, tx, d.ParentAgent, &row); err != nil {
			return Thread{}, err
		}
	}
	if row.People, err = t.peopleTx(ctx, tx, scope, d); err != nil {
		return Thread{}, err
	}
	return t.insertNewTx(ctx, tx, row, d)
}

// row returns the row of a new thread.
func (d Draft) row(house, name string, tags []string) query.InsertThreadParams {
	row := query.InsertThreadParams{
		ID: d.ID, HouseID: house, StreamID: StreamName(d.ID), Name: db.Null(name),
		ParentThreadID: db.Null(d.ParentThread), ParentAgentID: db.Null(d.ParentAgent),
		EnvironmentID: db.Null(d.Environment), AgentID: db.Null(d.Agent), Tags: tags, Status: string(initialStatus(d.Agent)), Root: db.Null(d.Root),
		AskedBy: db.Null(d.AskedBy),
	}
	if d.Pinned {
		row.PinnedAt = db.Null(time.Now())
	}
	return row
}

// nameAfterParentTx gives a thread without a name that of its parent, so that lists show the other side's name. The
// parent is checked here, because the foreign key would accept agents of any house.
func (t *Threads) nameAfterParentTx(ctx context.Context, tx pgx.Tx, parent string, row *query.InsertThreadParams) error {
	name, err := t.q.NameOfAgent(ctx, tx, parent)
	if errors.Is(err, pgx.ErrNoRows) {
		return noSuch("parent_agent_id")
	} else if err != nil {
		return err
	}
	if row.Name == nil {
		row.Name = db.Null(name)
	}
	return nil
}

// insertNewTx inserts a thread with a log of its own, or with a fork of its parent's.
func (t *Threads) insertNewTx(ctx context.Context, tx pgx.Tx, row query.InsertThreadParams, d Draft) (Thread, error) {
	if d.Forks {
		source, err := t.GetTx(ctx, tx, d.ParentThread)
		if err != nil {
			return Thread{}, err
		}
		return t.insertForkTx(ctx, tx, row, source, atEnd)
	}
	if err := stream.CreateTx(ctx, tx, stream.Ref{House: row.HouseID, Name: row.StreamID}); err != nil {
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

// peopleTx returns the people for whom a thread is listed. For a direct message it returns those who speak in it, for
// a child those of its parent, and for any other thread nil, which means the whole house.
func (t *Threads) peopleTx(ctx context.Context, tx pgx.Tx, scope db.Scope, d Draft) (people []string, err error) {
	if d.ParentThread != "" {
		parent, err := t.GetTx(ctx, tx, d.ParentThread)
		if fault.CodeOf(err) == fault.NotFound {
			return nil, nil // the foreign key says which field is wrong
		}
		return parent.People, err
	}
	if d.ParentAgent == "" {
		return nil, nil
	}
	for _, agent := range []string{scope.Agent, d.ParentAgent} {
		if agent == "" || slices.Contains(people, agent) {
			continue
		}
		kind, err := t.q.KindOfAgent(ctx, tx, agent)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		if kind == "human" {
			people = append(people, agent)
		}
	}
	slices.Sort(people)
	return people, nil
}
