package stream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// appendTries is how often Append tries in all while the database drops its connections.
const appendTries = 6

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
// A connection lost on the way is tried again for about a second and as long as ctx allows; the ids make
// that harmless, and make it harmless for the caller to repeat the call after a [fault.Unavailable].
// The other errors: [fault.NotFound] (no such log in this house), [fault.Precondition] (it is closed),
// [fault.Forbidden] (an author who is not in the house), [fault.Invalid] (not JSON, not UTF-8).
func (l *Log) Append(ctx context.Context, ref Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
	if err := l.stopping(); err != nil {
		return nil, err
	}
	drafts = withIDs(drafts)
	var pause backoff
	for try := 1; ; try++ {
		var rows []query.AppendEntriesRow
		err := l.in(ctx, ref, func(tx txn) (err error) {
			rows, err = appendRows(ctx, tx, ref, drafts)
			return err
		})
		if err == nil {
			entries := appended(ref, rows)
			if len(rows) > 0 {
				l.hub.offer(rows[0].StreamID, entries)
			}
			return entries, nil
		}
		if try == appendTries || !passing(err) || !pause.wait(ctx) {
			return nil, err
		}
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

// explain turns what Postgres says about a log into what a person may read.
func explain(ref Ref, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return noStream(ref).Because(err)
	}
	switch db.State(err) {
	case "P0002": // these four are raised by append_entries
		return noStream(ref).Because(err)
	case "55000":
		return fault.Newf(fault.Precondition, "write to another stream", "stream %s is closed", ref.Name).Because(err)
	case "42501":
		return fault.New(fault.Forbidden, "an author of these entries is not in this house",
			"add the agent to the house, or write in the name of a member").Because(err)
	case "22P02", "22P05", "22021": // malformed JSON or uuid, untranslatable character, invalid UTF-8
		return fault.New(fault.Invalid, "an entry's author is not an agent's id, or its text is not JSON in valid UTF-8",
			"send the payload as UTF-8 JSON without NUL bytes, and the author as a uuid").Because(err)
	}
	return db.Explain(err)
}

func noStream(ref Ref) *fault.Error {
	return fault.Newf(fault.NotFound, "check its name, and that its thread was not deleted", "there is no stream %s in this house", ref.Name)
}

// passing tells whether the same call may succeed a moment later.
func passing(err error) bool {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code == fault.Unavailable
	}
	return db.State(err) == "40001" || db.State(err) == "40P01" // serialization failure, deadlock victim
}

// backoff is the pause between attempts: 20 ms, doubling up to a second. The zero value is ready.
type backoff struct{ next time.Duration }

// wait pauses; false means that ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, 20*time.Millisecond), time.Second)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
