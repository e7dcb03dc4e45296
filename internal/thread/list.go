package thread

import (
	"context"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// MinPrefix is how many characters of an id are enough to look for it. A shorter prefix would match many threads.
const MinPrefix = 4

// Filter selects threads for a list. The zero Filter selects all, but see Limit.
type Filter struct {
	// Shared leaves out direct messages. Those of other people than the scope's agent are never listed.
	Shared bool
	// ParentThread, ForkedFrom, Tag and Status restrict the list; an empty one does not.
	ParentThread, ForkedFrom, Tag string
	Status                        Status
	// Match selects the threads whose id begins with it, if it has at least [MinPrefix] characters, and those with this
	// name. It must not be combined with another filter or a cursor, because its result has a single page.
	Match string
	// After is the last thread of the previous page. Its zero value selects the first page.
	After Cursor
	// Limit is the largest number of threads to return; it must be positive.
	Limit int
}

// List returns threads of the scope's house: pinned ones first, most recently pinned first, then by last activity,
// latest first. An unknown status is a [fault.Invalid].
func (t *Threads) List(ctx context.Context, scope db.Scope, f Filter) (list []Thread, err error) {
	if f.Status != "" && transitions[f.Status] == nil {
		return nil, fault.Newf(fault.Invalid, "use open, closed, idle, running, completed, failed or cancelled",
			"status: %q is not a status", f.Status)
	}
	after := query.ListThreadsParams{HouseID: scope.House, BeforePinned: "infinity", BeforeActivity: "infinity", MaxRows: int32(f.Limit), Shared: f.Shared}
	if f.After.ID != "" {
		after.BeforePinned, after.BeforeActivity, after.BeforeID = "-infinity", f.After.ActiveAt.UTC().Format(time.RFC3339Nano), f.After.ID
		if !f.After.PinnedAt.IsZero() {
			after.BeforePinned = f.After.PinnedAt.UTC().Format(time.RFC3339Nano)
		}
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		list, err = t.listTx(ctx, tx, f, after)
		return err
	})
	return list, err
}

// listTx uses the query that fits the filter. The unfiltered list has its own, because with filters in it Postgres would
// not read the page from the index that has its order.
func (t *Threads) listTx(ctx context.Context, tx pgx.Tx, f Filter, after query.ListThreadsParams) (list []Thread, err error) {
	if f.Match != "" {
		return t.matchTx(ctx, tx, f, after.HouseID)
	}
	switch narrow := (Filter{ParentThread: f.ParentThread, Tag: f.Tag, Status: f.Status}); {
	case narrow != Filter{}:
		rows, err := t.q.FilterThreads(ctx, tx, query.FilterThreadsParams{
			HouseID: after.HouseID, ParentThreadID: f.ParentThread, ForkedFromID: f.ForkedFrom, Tag: f.Tag, Status: string(f.Status),
			BeforePinned: after.BeforePinned, BeforeActivity: after.BeforeActivity, BeforeID: after.BeforeID, MaxRows: after.MaxRows,
			Shared: f.Shared,
		})
		return fromRows(rows), err
	case f.ForkedFrom != "":
		rows, err := t.q.ListForks(ctx, tx, query.ListForksParams{ForkedFromID: f.ForkedFrom,
			BeforePinned: after.BeforePinned, BeforeActivity: after.BeforeActivity, BeforeID: after.BeforeID, MaxRows: after.MaxRows})
		return fromRows(rows), err
	}
	rows, err := t.q.ListThreads(ctx, tx, after)
	return fromRows(rows), err
}

// matchTx returns the threads of a house that a filter's Match finds.
func (t *Threads) matchTx(ctx context.Context, tx pgx.Tx, f Filter, house string) (list []Thread, err error) {
	if alone := (Filter{Match: f.Match, Limit: f.Limit}); f != alone {
		return nil, fault.New(fault.Invalid, "match is used with another filter or a page_token", "leave out the others")
	}
	prefix := ""
	if len(f.Match) >= MinPrefix {
		prefix = f.Match
	}
	ids, err := t.q.MatchThreads(ctx, tx, query.MatchThreadsParams{HouseID: house, Prefix: prefix, Name: f.Match, MaxRows: int32(f.Limit)})
	if err != nil {
		return nil, err
	}
	rows, err := t.q.SomeThreads(ctx, tx, ids)
	list = fromRows(rows)
	sort.Slice(list, func(i, j int) bool { return list[i].Cursor().Compare(list[j].Cursor()) < 0 })
	return list[:min(len(list), f.Limit)], err
}

// ByIDs returns those of the given threads that are in the scope's house, in any order.
func (t *Threads) ByIDs(ctx context.Context, scope db.Scope, ids []string) (some []Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := t.q.SomeThreads(ctx, tx, ids)
		some = fromRows(rows)
		return err
	})
	return some, err
}

// WithForks returns those of the given threads of the scope's house that have forks, in any order.
func (t *Threads) WithForks(ctx context.Context, scope db.Scope, ids []string) (forked []string, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		forked, err = t.q.ForkedThreads(ctx, tx, ids)
		return err
	})
	return forked, err
}

// WithChildren returns those of the given threads of the scope's house that have children, in any order.
func (t *Threads) WithChildren(ctx context.Context, scope db.Scope, ids []string) (parents []string, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		parents, err = t.q.ParentThreads(ctx, tx, ids)
		return err
	})
	return parents, err
}
