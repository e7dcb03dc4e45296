package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// Logs returns the size of a house's logs, and the number of bytes at which nothing new can be said.
func (d *Dispatcher) Logs(ctx context.Context, scope db.Scope) (used LogsUsed, most int64, err error) {
	used, err = d.logs.used(ctx, scope.House)
	return used, d.logs.quota, err
}

// MemberLogs returns the size of the part of its house's logs that the scope's agent wrote.
func (d *Dispatcher) MemberLogs(ctx context.Context, scope db.Scope) (MemberLogs, error) {
	return d.logs.of(ctx, scope)
}

// LogBytes returns three sizes: of the logs of all houses together, of the largest house's logs, and of the most that one
// member wrote in a house.
func (d *Dispatcher) LogBytes(ctx context.Context) (all, most, member int64, err error) {
	err = d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		row, err := queries.LogBytes(ctx, tx)
		all, most, member = row.Total, row.Most, row.MostOfMember
		return err
	})
	return all, most, member, err
}

// MayGrow returns a [fault.Exhausted] if the logs of the scope's house have reached their quota, or its agent the quota of a
// member. Every operation that begins something new calls it. Entries of the server and of work in progress are not refused,
// because work that has begun must be able to end.
func (d *Dispatcher) MayGrow(ctx context.Context, scope db.Scope) error {
	return d.logs.mayGrow(ctx, scope)
}
