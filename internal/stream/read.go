package stream

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// defaultRows and maxRows bound the entries of one Read, and pageRows those of a page for a client that
	// reads on: more would only be more to wait for.
	defaultRows, maxRows, pageRows = 100, 1000, 10_000
	// readBytes bounds the payloads of one Read, and pageBytes those of a page for a tail: it ends with the
	// entry that passes this.
	readBytes, pageBytes = 8 << 20, 1 << 20
)

// Range says which entries of a log to read: those between two positions, both exclusive.
type Range struct {
	// After is the position to start behind. Defaults to 0, the start.
	After int64
	// Before is the position to end before. Defaults to 0, which is no bound.
	Before int64
	// Last takes the end of the range instead of its start.
	Last bool
	// Limit is how many entries at most. Defaults to 100; more than 1000 is 1000.
	Limit int
}

// Read returns entries of a log in ascending order, and tail, the position of the log's last entry. Large
// entries may make it return fewer than asked for (but never none of some): positions have no gap, so they
// tell whether there is more. Errors: [fault.NotFound], [fault.Invalid] for a negative position, and
// [fault.OutOfRange] for an After past the end.
func (l *Log) Read(ctx context.Context, ref Ref, r Range) (entries []entry.Entry, tail int64, err error) {
	if r.After < 0 || r.Before < 0 || r.Limit < 0 {
		return nil, 0, negative()
	}
	r.Limit = min(r.Limit, maxRows)
	err = l.in(ctx, ref, func(tx txn) error {
		s, err := queries.GetStream(ctx, tx, ref.House, ref.Name)
		if err != nil {
			return err
		}
		if r.After > s.Tail {
			return pastEnd(r.After, s.Tail)
		}
		if entries, err = page(ctx, tx, ref, s.ID, r, readBytes); err != nil {
			return err
		}
		// Entries that were committed between the two statements count as well.
		tail = s.Tail
		if n := len(entries); n > 0 {
			tail = max(tail, entries[n-1].Seq)
		}
		return nil
	})
	return entries, tail, err
}

// Get returns the entry with this id; [fault.NotFound] when the log has none.
func (l *Log) Get(ctx context.Context, ref Ref, id string) (entry.Entry, error) {
	var e entry.Entry
	err := l.in(ctx, ref, func(tx txn) error {
		s, err := queries.GetStream(ctx, tx, ref.House, ref.Name)
		if err != nil {
			return err
		}
		row, err := queries.GetEntry(ctx, tx, s.ID, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "there is no entry with this id", "check the id, or read the thread's entries")
		}
		e = fromRow(ref, query.ReadForwardRow(row))
		return err
	})
	return e, err
}

// section reads one range of the entries that the stream with this internal id has itself.
func section(ctx context.Context, tx txn, ref Ref, stream int64, r Range, bytes int64) ([]entry.Entry, error) {
	p := query.ReadForwardParams{StreamID: stream, After: r.After, Before: r.Before, MaxRows: int32(r.Limit), MaxBytes: bytes}
	var entries []entry.Entry
	if r.Last {
		rows, err := queries.ReadBackward(ctx, tx, query.ReadBackwardParams(p))
		if err != nil {
			return nil, err
		}
		for _, row := range slices.Backward(rows) {
			entries = append(entries, fromRow(ref, query.ReadForwardRow(row)))
		}
		return entries, nil
	}
	if r.Before-r.After < 2 {
		return nil, nil
	}
	if entries, err := readSmall(ctx, tx, ref, stream, r, bytes); err != nil || len(entries) > 0 {
		return entries, err
	}
	p.MaxRows = min(p.MaxRows, maxRows) // the bytes of every one of them are counted
	rows, err := queries.ReadForward(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		entries = append(entries, fromRow(ref, row))
	}
	return entries, nil
}

// readOn reads what comes after a position, for those who follow a log: they know the stream by its
// internal id, which a stream of the same name made later does not share.
func (l *Log) readOn(ctx context.Context, ref Ref, stream, after int64) (entries []entry.Entry, err error) {
	select {
	case l.catchUps <- struct{}{}:
		defer func() { <-l.catchUps }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = l.in(ctx, ref, func(tx txn) error {
		entries, err = page(ctx, tx, ref, stream, Range{After: after, Limit: maxRows}, pageBytes)
		return err
	})
	return entries, err
}

// has tells whether the stream holds an entry with this id.
func (l *Log) has(ctx context.Context, ref Ref, stream int64, id string) (found bool, err error) {
	err = l.in(ctx, ref, func(tx txn) error {
		found, err = queries.HasEntry(ctx, tx, stream, id)
		return err
	})
	return found, err
}

func fromRow(ref Ref, r query.ReadForwardRow) entry.Entry {
	e := entry.Entry{Seq: r.Seq, ID: r.ID, StreamID: ref.Name, Type: r.Type, Payload: r.Payload, Time: r.Ts.UTC()}
	if r.AuthorAgentID != nil {
		e.Author = *r.AuthorAgentID
	}
	return e
}

func pastEnd(after, tail int64) error {
	return fault.Newf(fault.OutOfRange, "start at a position you have read, or at 0",
		"position %d is past the end: the last entry is at %d", after, tail)
}

func negative() error {
	return fault.New(fault.Invalid, "a position or a limit is negative", "count positions from 0, the start")
}
