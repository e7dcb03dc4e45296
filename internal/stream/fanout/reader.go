package fanout

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// maxReaders is the number of tails and topics that may read from the log at the same time. There are only a few,
	// so that connections of the pool remain for appends.
	maxReaders = 4
	// readBytes limits the payloads of one read, which ends with the entry that exceeds it.
	readBytes = 1 << 20
)

// reader reads logs for watchers and topics.
type reader struct {
	store *store.Store
	slots chan struct{}
}

// after reads what follows a position in the stream with this id. It asks by id, because a later stream of the same
// name has another id and other entries.
func (r *reader) after(ctx context.Context, ref store.Ref, stream, after int64) (entries []entry.Entry, err error) {
	err = r.in(ctx, ref, func(tx pgx.Tx) error {
		entries, err = store.Read(ctx, tx, ref, stream, store.Range{After: after, Limit: store.MaxRows}, readBytes)
		return err
	})
	return entries, err
}

// has reports whether the stream holds an entry with one of these ids.
func (r *reader) has(ctx context.Context, ref store.Ref, stream int64, ids []string) (found bool, err error) {
	err = r.in(ctx, ref, func(tx pgx.Tx) error {
		found, err = store.Has(ctx, tx, stream, ids...)
		return err
	})
	return found, err
}

// in runs f in a transaction once a slot is free. A lookup of one entry takes a slot too: it occupies a connection, and
// every new preview needs one.
func (r *reader) in(ctx context.Context, ref store.Ref, f func(tx pgx.Tx) error) error {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.store.In(ctx, ref, f)
}
