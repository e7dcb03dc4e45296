package stream

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// CreateTx creates an empty log in the caller's transaction. If the house already has a log of this name, the error is
// a [fault.Exists].
func CreateTx(ctx context.Context, tx pgx.Tx, ref Ref) error {
	err := queries.CreateStream(ctx, tx, ref.House, ref.Name)
	if db.State(err) == pgerrcode.UniqueViolation {
		return nameTaken(ref).Because(err)
	}
	return db.Explain(err)
}

func nameTaken(ref Ref) *fault.Error {
	return fault.Newf(fault.Exists, "choose another name", "there is already a stream %s", ref.Name).WithReason(fault.IDTaken)
}

// Append adds drafts at the end of a log, in order and all or none, and returns their entries after the commit, one per
// draft. A draft whose id the log already has is not written again; Append returns the first write's entry for it. The
// doors check the content of each kind ([entry.Check]); Append does not.
//
// Appends to all logs share commits: a call waits only for the commit in progress. While a caller of [Log.AppendTx]
// holds a log's lock, appends to that log wait for its transaction; appends to other logs do not. If ctx ends first,
// the entries may still be written. Append retries for some seconds after a lost connection. The ids make retries
// harmless, so a caller who chose them may repeat a failed call.
//
// Errors: [fault.NotFound] (the house has no such log), [fault.Precondition] (the log is closed), [fault.Forbidden] (an
// author is not in the house), [fault.Invalid] (not JSON, or not UTF-8), [fault.Exhausted] (too many appends are
// waiting: try again later) and [fault.Unavailable], after which it is unknown whether the entries were written.
func (l *Log) Append(ctx context.Context, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	return l.commit.Append(ctx, ref, 0, withIDs(drafts))
}

// AppendTx is [Log.Append] in the caller's transaction, whose scope must be ref's house. Use it for entries that must
// commit together with rows. The positions are final if the transaction commits; otherwise nobody ever sees the
// entries. It holds the log's lock until the transaction ends. Append last, because other appends to the log wait
// meanwhile, and to several logs in a fixed order, because two transactions could otherwise deadlock.
func (l *Log) AppendTx(ctx context.Context, tx pgx.Tx, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	if err := l.stopping(); err != nil {
		return nil, err
	}
	stream, entries, err := store.Append(ctx, tx, ref, withIDs(drafts))
	if err != nil {
		return nil, store.Explain(ref, err)
	}
	if len(entries) > 0 {
		tail := slices.MaxFunc(entries, func(a, b entry.Entry) int { return cmp.Compare(a.Seq, b.Seq) }).Seq
		l.follower.expect(tx.Conn().PgConn().PID(), ref, stream, tail)
	}
	return entries, nil
}

// withIDs gives every draft an id before the first attempt, so that all attempts write the same entry.
func withIDs(drafts []entry.Draft) []entry.Draft {
	drafts = slices.Clone(drafts)
	for i := range drafts {
		if drafts[i].ID == "" {
			// Version 7, because these ids grow with time and new ones therefore share index pages.
			drafts[i].ID = uuid.Must(uuid.NewV7()).String()
		}
	}
	return drafts
}
