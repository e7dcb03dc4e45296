package stream

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// readBytes limits the payloads of one Read, which ends with the entry that exceeds it, so that a request takes a
// bounded amount of memory.
const readBytes = 8 << 20

// Range selects the entries between two positions, both exclusive. By default it selects the first 100, and it never
// selects more than 1000.
type Range = store.Range

// Kinds selects entries by their types.
type Kinds = store.Kinds

// Read returns entries of a log in ascending order, and the position of the log's last entry. If entries are large it
// may return fewer than requested, but at least one if there is any. Positions have no gaps, so they show whether there
// are more. Errors: [fault.NotFound], [fault.Invalid] for a negative position, and [fault.OutOfRange] for an After past
// the end.
func (l *Log) Read(ctx context.Context, ref Ref, r Range) (entries []entry.Entry, tail int64, err error) {
	if r.After < 0 || r.Before < 0 || r.Limit < 0 {
		return nil, 0, store.Negative()
	}
	err = l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err := store.FindTx(ctx, tx, ref)
		if err != nil {
			return err
		}
		if r.After > s.Tail {
			return store.PastEnd(r.After, s.Tail)
		}
		if entries, err = store.Read(ctx, tx, ref, s.ID, r, readBytes); err != nil {
			return err
		}
		// Each statement sees what was committed before it, so the entries may go beyond the tail that was read first.
		tail = s.Tail
		if n := len(entries); n > 0 {
			tail = max(tail, entries[n-1].Seq)
		}
		return nil
	})
	return entries, tail, err
}

// Pick is [Log.Read] restricted to entries of some kinds. It looks at a limited number of entries, so it may return none
// although the range has some.
// searched is the position of the last entry that it looked at. The next Pick continues from there: as its After, or if
// r.Last, its Before. The search is complete when searched reaches the end of the range.
func (l *Log) Pick(ctx context.Context, ref Ref, r Range, kinds Kinds) (entries []entry.Entry, searched, tail int64, err error) {
	if r.After < 0 || r.Before < 0 || r.Limit < 0 {
		return nil, 0, 0, store.Negative()
	}
	err = l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err := store.FindTx(ctx, tx, ref)
		if err != nil {
			return err
		}
		if r.After > s.Tail {
			return store.PastEnd(r.After, s.Tail)
		}
		tail = s.Tail
		entries, searched, err = store.Pick(ctx, tx, ref, s.ID, r, kinds, s.Tail, readBytes)
		return err
	})
	return entries, searched, tail, err
}

// Get returns the entry with this id, or a [fault.NotFound].
func (l *Log) Get(ctx context.Context, ref Ref, id string) (e entry.Entry, err error) {
	err = l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err := store.FindTx(ctx, tx, ref)
		if err != nil {
			return err
		}
		e, err = store.Get(ctx, tx, ref, s.ID, id)
		return err
	})
	return e, err
}
