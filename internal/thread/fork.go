package thread

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// Inherited reports whether the entry at a position was written to the source of this fork. Only the source does the
// work that such an entry asks for; otherwise a fork would run its source's commands again.
func (t Thread) Inherited(seq int64) bool { return t.Origin != nil && seq <= t.Origin.Seq }

// Fork describes a fork to create. All fields are optional.
type Fork struct {
	// ID makes a retry harmless, as in [Draft].
	ID string
	// At is the last entry to share with the source. Defaults to 0, the source's end.
	At int64
	// Name is the fork's title. Defaults to the source's, marked as a fork.
	Name string
}

// Fork creates a thread that shares the source's entries up to a position and then continues on its own. The shared
// part of the log is not copied, so that a fork of a long log costs no more than that of a short one: entries keep
// their positions and ids, and stay in the fork if the source is deleted.
//
// A fork has the source's driver, environment and tags, and the state of a new thread: idle or open, not pinned,
// without a sandbox. Its first command creates a sandbox of its own, because two threads would disturb each other in
// one working tree. A fork of a direct message is a direct message to the same agent. A fork of a child is a root
// thread: the parent did not spawn it, so the parent neither waits for it nor is it deleted with the parent. The fork's
// own log begins with an [entry.Forked].
//
// If the ID was already used in the house for the same fork, Fork returns that fork; if it was used for another thread,
// the error is a [fault.Exists]. Other errors: [fault.NotFound] (no such source) and [fault.OutOfRange] (the source
// ends before At).
func (t *Threads) Fork(ctx context.Context, scope db.Scope, source string, f Fork) (made Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = t.fork(ctx, tx, scope, source, f)
		return err
	})
	return made, err
}

func (t *Threads) fork(ctx context.Context, tx pgx.Tx, scope db.Scope, sourceID string, f Fork) (made Thread, err error) {
	// Lock the thread before its log, as deletion does: otherwise the two could deadlock.
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
	if f.ID, err = t.newID(ctx, tx, scope.House, f.ID); err != nil {
		return Thread{}, err
	}
	made, err = t.insertForkTx(ctx, tx, query.InsertThreadParams{
		ID: f.ID, HouseID: scope.House, StreamID: StreamName(f.ID), Name: db.Null(name), ParentAgentID: db.Null(source.ParentAgent),
		EnvironmentID: db.Null(source.Environment), AgentID: db.Null(source.Agent), Tags: source.Tags, Status: string(initialStatus(source.Agent)),
		AnsweringAgentID: db.Null(source.Answering), AnsweringDecided: source.Settled, People: source.People,
	}, source, cmp.Or(f.At, atEnd))
	if fault.CodeOf(err) == fault.Exists {
		return t.forked(ctx, tx, sourceID, f)
	} else if err != nil {
		return Thread{}, err
	}
	if _, err = t.log.AppendTx(ctx, tx, made.Stream(), entry.NewDraft("", scope.Agent, entry.Forked{ThreadID: sourceID, Seq: made.Origin.Seq})); err != nil {
		return Thread{}, err
	}
	return t.GetTx(ctx, tx, made.ID)
}

// atEnd is the position of a fork at the end of its source.
const atEnd = -1

// insertForkTx writes the row of a fork, whose log begins with the source's entries up to a position. If a bot drives
// the fork, its first run gets the number after the source's last one: the ids of a run's entries contain its number,
// and an id that the log already has is not written again. No message of the shared part waits for the fork's bot.
func (t *Threads) insertForkTx(ctx context.Context, tx pgx.Tx, row query.InsertThreadParams, source Thread, at int64) (Thread, error) {
	ref := stream.Ref{House: row.HouseID, Name: row.StreamID}
	seq, err := t.log.ForkTx(ctx, tx, ref, stream.ForkPoint{Source: source.StreamID, Seq: at})
	if err != nil {
		return Thread{}, err
	}
	row.ForkedFromID, row.ForkedAtSeq = &source.ID, &seq
	if row.AgentID != nil {
		row.RunEpoch, row.RunThrough = source.Run.Epoch, seq
	}
	made, err := t.insert(ctx, tx, row)
	if err == nil {
		err = entrystate.ForkTx(ctx, tx, source.Stream(), ref, row.ID, seq)
	}
	return made, err
}

// forked returns the existing thread with a fork's id if it is that fork.
func (t *Threads) forked(ctx context.Context, tx pgx.Tx, source string, f Fork) (Thread, error) {
	there, err := t.GetTx(ctx, tx, f.ID)
	// Without At, any position is the same fork, because the source may have grown since the first attempt.
	same := there.Origin != nil && there.Origin.Thread == source && (f.At == 0 || f.At == there.Origin.Seq)
	if fault.CodeOf(err) == fault.NotFound || err == nil && !same {
		return Thread{}, idTaken()
	}
	return there, err
}

// forkName returns the title of a fork without a name.
func forkName(source Thread) string {
	const prefix = "Fork of "
	name := entry.Visible(source.Name, func(rune) string { return "" }) // older names may contain characters that [entry.Name] refuses
	if name == "" {
		name = source.ID
	}
	if strings.HasPrefix(name, prefix) { // otherwise a fork of a fork would be a "Fork of Fork of …"
		return name
	}
	name = prefix + name
	if utf8.RuneCountInString(name) > MaxName {
		name = string([]rune(name)[:MaxName-1]) + "…"
	}
	return name
}
