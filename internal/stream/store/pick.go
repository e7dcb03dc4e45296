package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// Kinds selects entries by their types.
type Kinds struct {
	// Types are the types of the entries; empty for all. The type signal, for example, also selects types that begin with
	// "signal.".
	Types []string
	// Without leaves out entries whose types begin with it; empty for none.
	Without string
}

// pickRows is how many entries one Pick looks at. It takes Postgres some 50 ms.
const pickRows = 100_000

// Pick is [Read] restricted to entries of some kinds. tail is the position of the log's last entry. Pick looks at a
// limited number of entries and returns the position of the last one. The next Pick continues from there: as its After,
// or if r.Last, its Before. For an empty range it returns the position after which, or before which, there is nothing to
// look at.
func Pick(ctx context.Context, tx pgx.Tx, ref Ref, stream int64, r Range, kinds Kinds, tail, bytes int64) (entries []entry.Entry, searched int64, err error) {
	low, high := r.After+1, tail // the entries to look at, both included
	if r.Before > 0 {
		high = min(high, r.Before-1)
	}
	if low > high {
		if r.Last {
			return nil, low, nil
		}
		return nil, r.After, nil
	}
	if r.Last {
		low, searched = max(low, high-pickRows+1), max(low, high-pickRows+1)
	} else {
		high, searched = min(high, low+pickRows-1), min(high, low+pickRows-1)
	}
	if r.Limit == 0 {
		r.Limit = defaultRows
	}
	r.Limit = min(r.Limit, MaxRows)
	line, err := queries.Lineage(ctx, tx, stream)
	if err != nil {
		return nil, 0, err
	}
	if r.Last {
		slices.Reverse(line)
	}
	groups := make([]string, len(kinds.Types))
	for i, t := range kinds.Types {
		groups[i] = t + "."
	}
	for _, part := range line {
		after, before := max(low, part.First)-1, min(high+1, part.Before)
		if before-after <= 1 {
			continue
		}
		rows, err := pickPart(ctx, tx, r.Last, query.PickForwardParams{
			StreamID: part.ID, After: after, Before: before, Types: append([]string{}, kinds.Types...), Groups: groups, Without: kinds.Without, MaxRows: int32(r.Limit - len(entries)), MaxBytes: bytes,
		})
		if err != nil {
			return nil, 0, err
		}
		for _, row := range rows {
			entries = append(entries, fromRow(ref, row))
			bytes -= int64(len(row.Payload))
		}
		// A limit was reached, perhaps with the last entry that there is.
		if n := len(entries); n == r.Limit || bytes <= 0 {
			searched = entries[n-1].Seq
			break
		}
	}
	if r.Last {
		slices.Reverse(entries)
	}
	return entries, searched, nil
}

func pickPart(ctx context.Context, tx pgx.Tx, last bool, p query.PickForwardParams) (rows []query.ReadForwardRow, err error) {
	if !last {
		forward, err := queries.PickForward(ctx, tx, p)
		for _, row := range forward {
			rows = append(rows, query.ReadForwardRow(row))
		}
		return rows, err
	}
	backward, err := queries.PickBackward(ctx, tx, query.PickBackwardParams(p))
	for _, row := range backward {
		rows = append(rows, query.ReadForwardRow(row))
	}
	return rows, err
}
