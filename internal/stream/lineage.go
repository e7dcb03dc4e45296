package stream

import (
	"context"
	"math"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// page reads one range of the stream with this internal id. What a fork inherited is read where it is, in
// the streams it comes from.
func page(ctx context.Context, tx txn, ref Ref, stream int64, r Range, bytes int64) ([]entry.Entry, error) {
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
	// Positions have no gap, so what is missing here is inherited (or there is nothing).
	line, err := queries.Lineage(ctx, tx, stream)
	if err != nil || len(line) < 2 {
		return own, err
	}
	if r.Last {
		return lineBackward(ctx, tx, ref, line, r, bytes)
	}
	return lineForward(ctx, tx, ref, line, r, bytes)
}

// gap tells whether entries that were read for r may lack some that other streams have.
func gap(entries []entry.Entry, r Range) bool {
	switch {
	case len(entries) == 0:
		return r.Before-r.After > 1
	case r.Last:
		return entries[0].Seq > r.After+1 && len(entries) < r.Limit
	}
	return entries[0].Seq > r.After+1
}

func lineForward(ctx context.Context, tx txn, ref Ref, line []query.LineageRow, r Range, bytes int64) (entries []entry.Entry, err error) {
	before := r.Before
	for _, part := range line {
		if part.Before <= r.After+1 {
			continue
		}
		r.Before = min(before, part.Before)
		more, err := section(ctx, tx, ref, part.ID, r, bytes)
		if err != nil {
			return nil, err
		}
		entries = append(entries, more...)
		if len(more) == 0 || more[len(more)-1].Seq+1 < r.Before {
			return entries, nil // a limit was reached, or the end
		}
		r.After, r.Limit, bytes = r.Before-1, r.Limit-len(more), bytes-size(more)
		if r.Before == before || r.Limit == 0 || bytes <= 0 {
			return entries, nil
		}
	}
	return entries, nil
}

func lineBackward(ctx context.Context, tx txn, ref Ref, line []query.LineageRow, r Range, bytes int64) (entries []entry.Entry, err error) {
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
