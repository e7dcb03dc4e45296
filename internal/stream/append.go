package stream

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// CreateTx makes an empty log in the caller's transaction. A name that the house has already is a
// [fault.Exists].
func CreateTx(ctx context.Context, tx pgx.Tx, ref Ref) error {
	err := queries.CreateStream(ctx, tx, ref.House, ref.Name)
	if db.State(err) == "23505" {
		return fault.Newf(fault.Exists, "choose another name", "there is a stream %s already", ref.Name).Because(err)
	}
	return db.Explain(err)
}

// Append writes drafts behind the end of a log, in order and all or none, and returns their entries once
// they are committed, one per draft. A draft whose id the log has is not written again: its entry is the
// first write's. What kinds may say is checked at the doors ([entry.Check]), not here.
//
// When the connection is lost on the way, Append tries again for some seconds and as long as ctx allows;
// the ids make that harmless. After a [fault.Unavailable] it is not known whether the entries were written:
// a caller who chose the ids may repeat the call.
// The other errors: [fault.NotFound] (no such log in this house), [fault.Precondition] (it is closed),
// [fault.Forbidden] (an author who is not in the house), [fault.Invalid] (not JSON, not UTF-8).
func (l *Log) Append(ctx context.Context, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	if err := l.stopping(); err != nil {
		return nil, err
	}
	drafts = withIDs(drafts)
	var rows []query.AppendEntriesRow
	err := l.in(ctx, ref, func(tx txn) (err error) {
		rows, err = appendRows(ctx, tx, ref, drafts)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	entries := appended(ref, rows)
	l.hub.offer(rows[0].StreamID, entries)
	return entries, nil
}

// AppendTx is [Log.Append] inside the caller's transaction, whose scope must be ref's house: for entries
// that are true only together with the rows the transaction writes. The positions are final if it commits,
// and nobody ever sees them if it does not. It holds the log's lock until the transaction ends, so append
// last, and to several logs in a fixed order.
func (l *Log) AppendTx(ctx context.Context, tx pgx.Tx, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	if err := l.stopping(); err != nil {
		return nil, err
	}
	rows, err := appendRows(ctx, tx, ref, withIDs(drafts))
	if err != nil {
		return nil, explain(ref, err)
	}
	return appended(ref, rows), nil
}

// withIDs gives every draft an id before the first attempt, so that all attempts write the same entry.
func withIDs(drafts []entry.Draft) []entry.Draft {
	drafts = slices.Clone(drafts)
	for i := range drafts {
		if drafts[i].ID == "" {
			// Version 7 grows with time: new ids meet in the same pages of the index.
			drafts[i].ID = uuid.Must(uuid.NewV7()).String()
		}
	}
	return drafts
}

func appendRows(ctx context.Context, tx txn, ref Ref, drafts []entry.Draft) ([]query.AppendEntriesRow, error) {
	p := query.AppendEntriesParams{Stream: ref.Name}
	for _, d := range drafts {
		p.Ids = append(p.Ids, d.ID)
		p.Authors = append(p.Authors, d.Author)
		p.Types = append(p.Types, d.Type)
		p.Payloads = append(p.Payloads, string(d.Payload))
	}
	return queries.AppendEntries(ctx, tx, p)
}

func appended(ref Ref, rows []query.AppendEntriesRow) []entry.Entry {
	entries := make([]entry.Entry, len(rows))
	for i, r := range rows {
		entries[i] = entry.Entry{Seq: r.Seq, ID: r.ID, StreamID: ref.Name, Author: r.Author, Type: r.Type, Payload: r.Payload, Time: r.Ts.UTC()}
	}
	return entries
}
