package store

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Read reads a range of the stream with this id in ascending order. It ends with the entry whose payload exceeds the
// given number of bytes, so that it returns one entry at least, however large. Its error is not explained.
func Read(ctx context.Context, tx pgx.Tx, ref Ref, stream int64, r Range, bytes int64) (entries []entry.Entry, err error) {
	r.Limit = min(r.Limit, MaxRows)
	if r.Last {
		return backward(ctx, tx, ref, stream, r, bytes)
	}
	err = NewScan(tx, ref, r, bytes, func(e *entry.Entry) {
		kept := *e
		// A copy, because the scan reuses the payload's memory.
		kept.Payload = slices.Clone(e.Payload)
		entries = append(entries, kept)
	}).Run(ctx, stream)
	return entries, err
}

// Get returns the entry with this id that the stream has or inherits, or a [fault.NotFound].
func Get(ctx context.Context, tx pgx.Tx, ref Ref, stream int64, id string) (entry.Entry, error) {
	row, err := queries.GetEntry(ctx, tx, stream, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return entry.Entry{}, fault.New(fault.NotFound, "there is no entry with this id", "check the id, or read the thread's entries")
	}
	return fromRow(ref, query.ReadForwardRow(row)), err
}

// Has reports whether the stream itself, not one it was forked from, holds an entry with one of these ids. A fork holds a
// copy of the last entry that it inherited.
func Has(ctx context.Context, tx pgx.Tx, stream int64, ids ...string) (bool, error) {
	return queries.HasEntry(ctx, tx, stream, ids)
}

// backward reads the end of a range. It reads what a fork inherited from the streams that the fork comes from.
func backward(ctx context.Context, tx pgx.Tx, ref Ref, stream int64, r Range, bytes int64) ([]entry.Entry, error) {
	if r.Before == 0 {
		r.Before = math.MaxInt64
	}
	if r.Limit == 0 {
		r.Limit = defaultRows
	}
	own, err := section(ctx, tx, ref, stream, r, bytes)
	if err != nil || !gap(own, r) {
		return own, err
	}
	// The missing entries are inherited or do not exist, because positions have no gaps.
	line, err := queries.Lineage(ctx, tx, stream)
	if err != nil || len(line) < 2 {
		return own, err
	}
	return lineBackward(ctx, tx, ref, line, r, bytes)
}

// gap reports whether entries, read for the end of r, may lack some that other streams hold.
func gap(entries []entry.Entry, r Range) bool {
	if len(entries) == 0 {
		return r.Before-r.After > 1
	}
	return entries[0].Seq > r.After+1 && len(entries) < r.Limit
}

// section reads the end of a range of the stream's own entries.
func section(ctx context.Context, tx pgx.Tx, ref Ref, stream int64, r Range, bytes int64) (entries []entry.Entry, err error) {
	rows, err := queries.ReadBackward(ctx, tx, query.ReadBackwardParams{
		StreamID: stream, After: r.After, Before: r.Before, MaxRows: int32(r.Limit), MaxBytes: bytes,
	})
	for _, row := range slices.Backward(rows) {
		entries = append(entries, fromRow(ref, query.ReadForwardRow(row)))
	}
	return entries, err
}

func lineBackward(ctx context.Context, tx pgx.Tx, ref Ref, line []query.LineageRow, r Range, bytes int64) (entries []entry.Entry, err error) {
	after := r.After
	for i := len(line) - 1; i >= 0; i-- {
		part := line[i]
		if part.First >= r.Before {
			continue
		}
		r.After = max(after, part.First-1)
		more, err := section(ctx, tx, ref, part.ID, r, bytes)
		if err != nil {
			return nil, err
		}
		entries = append(more, entries...)
		if len(more) > 0 && more[0].Seq > r.After+1 {
			return entries, nil // a limit was reached
		}
		r.Before, r.Limit, bytes = r.After+1, r.Limit-len(more), bytes-size(more)
		if r.After == after || r.Limit == 0 || bytes <= 0 {
			return entries, nil
		}
	}
	return entries, nil
}

func size(entries []entry.Entry) (bytes int64) {
	for _, e := range entries {
		bytes += int64(len(e.Payload))
	}
	return bytes
}
