package stream

import (
	"context"
	"slices"
	"time"

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
		return nameTaken(ref).Because(err)
	}
	return db.Explain(err)
}

func nameTaken(ref Ref) *fault.Error {
	return fault.Newf(fault.Exists, "choose another name", "there is a stream %s already", ref.Name)
}

// Append writes drafts behind the end of a log, in order and all or none, and returns their entries once
// they are committed, one per draft. A draft whose id the log has is not written again: its entry is the
// first write's. What kinds may say is checked at the doors ([entry.Check]), not here.
//
// Calls to all logs share commits, and wait for nobody but the commit under way; those to a log that a
// caller of [Log.AppendTx] has locked wait for that transaction, and hold up no other log's. When ctx ends
// first, the entries may be written all the same. A lost connection is tried again for some seconds. The
// ids make it harmless, and a caller who chose them may repeat a call that failed.
// Errors: [fault.NotFound] (no such log in this house), [fault.Precondition] (it is closed),
// [fault.Forbidden] (an author who is not in the house), [fault.Invalid] (not JSON, not UTF-8);
// [fault.Exhausted] (too much waits already: try again later), and [fault.Unavailable], after which it is
// not known whether the entries were written.
func (l *Log) Append(ctx context.Context, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	if err := l.stopping(); err != nil || len(drafts) == 0 {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := newCall(ref, withIDs(drafts))
	if err != nil {
		return nil, err
	}
	n, err := l.lane(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := l.queue.put(ctx, n, c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		if c.err != nil {
			return nil, c.err
		}
		return c.entries, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newCall copies drafts: the committer may read them when the caller waits no more.
func newCall(ref Ref, drafts []entry.Draft) (*call, error) {
	c := &call{entries: make([]entry.Entry, len(drafts)), done: make(chan struct{}), since: time.Now()}
	for i, d := range drafts {
		author := ""
		if d.Author != "" {
			id, err := uuid.Parse(d.Author)
			if err != nil {
				return nil, malformed().Because(err)
			}
			author = id.String()
		}
		c.entries[i] = entry.Entry{ID: d.ID, StreamID: ref.Name, Author: author, Type: d.Type, Payload: slices.Clone(d.Payload)}
		c.bytes += entryBytes + int64(len(d.ID)+len(d.Type)+len(d.Payload))
	}
	c.bytes = min(c.bytes, laneBytes) // a larger one has the lane for itself
	return c, nil
}

// lane finds the lane of a stream, and asks the database when nobody here wrote to it lately.
func (l *Log) lane(ctx context.Context, ref Ref) (*lane, error) {
	for {
		if n := l.queue.enter(ref); n != nil {
			return n, nil
		}
		s, err := l.lookup(ctx, ref)
		if err != nil {
			return nil, err
		}
		l.queue.learn(ref, s.ID, s.Tail)
	}
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
