package thread

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// Origin is where a thread was forked from.
type Origin struct {
	// Thread is the source; empty once that was deleted.
	Thread string
	// Seq is the last entry that both have in common; 0 when the source was empty.
	Seq int64
}

// Inherited tells whether the entry at a position was written to the thread that this one is a fork of. What
// was asked for there is done there, and nowhere else.
func (t Thread) Inherited(seq int64) bool { return t.Origin != nil && seq <= t.Origin.Seq }

// Fork says what fork to make of a thread. All fields are optional.
type Fork struct {
	// ID makes a retry harmless; empty lets the database choose.
	ID string
	// At is the last entry to have in common with the source. Defaults to 0, its end.
	At int64
	// Name defaults to the source's, saying that it is a fork of that.
	Name string
}

// Fork makes a thread that begins as the source is up to an entry, and goes on by itself. The log up to there
// is the same one, not a copy: entries keep their positions and ids, and stay for the fork when the source is
// deleted.
//
// A fork starts with the source's driver, environment and tags, as new: idle or open, not pinned, and without
// a sandbox. Its first command makes it one of its own, for two threads on one working tree would be in each
// other's way. A direct message's fork is one to the same agent. A child's fork is a root: its parent did not
// spawn it, so it neither waits for it nor takes it along when it is deleted. The fork's own log begins with an
// [entry.Forked].
//
// A fork whose ID is taken by the same fork returns that, and a [fault.Exists] otherwise. Other errors:
// [fault.NotFound] (no such source), [fault.OutOfRange] (it ends before At).
func (t *Threads) Fork(ctx context.Context, scope db.Scope, source string, f Fork) (made Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = t.fork(ctx, tx, scope, source, f)
		return err
	})
	return made, err
}

func (t *Threads) fork(ctx context.Context, tx pgx.Tx, scope db.Scope, sourceID string, f Fork) (Thread, error) {
	// A thread is locked before its log, here as by those who delete it.
	source, err := t.LockTx(ctx, tx, sourceID)
	if err != nil {
		return Thread{}, err
	}
	name, err := entry.Name("name", f.Name, MaxName)
	if err != nil {
		return Thread{}, err
	}
	if name == "" {
		name = forkName(source)
	}
	if f.ID == "" {
		if f.ID, err = t.q.NewID(ctx, tx); err != nil {
			return Thread{}, err
		}
	}
	point := stream.ForkPoint{Source: source.StreamID, Seq: f.At}
	if f.At == 0 {
		point.Seq = -1
	}
	ref := stream.Ref{House: scope.House, Name: StreamName(f.ID)}
	seq, err := t.log.ForkTx(ctx, tx, ref, point)
	if fault.CodeOf(err) == fault.Exists {
		return t.forked(ctx, tx, sourceID, f)
	} else if err != nil {
		return Thread{}, err
	}
	if _, err := t.log.AppendTx(ctx, tx, ref, entry.NewDraft("", scope.Agent, entry.Forked{ThreadID: sourceID, Seq: seq})); err != nil {
		return Thread{}, err
	}
	return t.insert(ctx, tx, query.InsertThreadParams{
		ID: f.ID, HouseID: scope.House, StreamID: ref.Name, Name: db.Null(name), ParentAgentID: db.Null(source.ParentAgent),
		EnvironmentID: db.Null(source.Environment), AgentID: db.Null(source.Agent), Tags: source.Tags, Status: string(first(source.Agent)),
		ForkedFromID: &sourceID, ForkedAtSeq: &seq,
	})
}

// forked is the thread that has a fork's id already, when it is that fork.
func (t *Threads) forked(ctx context.Context, tx pgx.Tx, source string, f Fork) (Thread, error) {
	there, err := t.GetTx(ctx, tx, f.ID)
	same := there.Origin != nil && there.Origin.Thread == source && (f.At == 0 || f.At == there.Origin.Seq)
	if fault.CodeOf(err) == fault.NotFound || err == nil && !same {
		return Thread{}, idTaken()
	}
	return there, err
}

// forkName is the title of a fork that is given none.
func forkName(source Thread) string {
	const prefix = "Fork of "
	name := source.Name
	if name == "" {
		name = source.ID
	}
	if strings.HasPrefix(name, prefix) {
		return name
	}
	name = prefix + name
	if utf8.RuneCountInString(name) > MaxName {
		name = string([]rune(name)[:MaxName-1]) + "…"
	}
	return name
}
