package dispatch

import (
	"context"
	"errors"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/wait"
)

// scan finds all threads with undecided entries, whichever server accepted them.
func (c *decider) scan(ctx context.Context) error {
	for after := int64(0); ; {
		var rows []query.UndecidedAfterRow
		err := c.in(ctx, func(tx pgx.Tx) (err error) {
			rows, err = queries.UndecidedAfter(ctx, tx, after, newsMost)
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			after = row.StreamID
			c.Committed(stream.Ref{House: row.HouseID, Name: row.Stream}, row.StreamID)
		}
		if len(rows) < newsMost {
			return nil
		}
	}
}

// recoverDead decides and indexes what dead servers left behind. A server that stopped in an orderly way left nothing behind
// and has no row. A server that looks dead may only have lost its connection and still accept entries, or be about to stop.
// So its row is kept for an hour and then checked one last time.
func (c *decider) recoverDead(ctx context.Context) error {
	gone, err := c.gone(ctx)
	if err != nil || len(gone) == 0 {
		return err
	}
	if !wait.For(ctx, c.jobs.LockGrace()) {
		return ctx.Err()
	}
	again, err := c.gone(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(gone, func(key int64, _ query.ListServersRow) bool { _, still := again[key]; return !still })
	if len(gone) == 0 {
		return nil
	}
	if err := errors.Join(c.scan(ctx), c.index.scan(ctx)); err != nil {
		return err
	}
	return c.in(ctx, func(tx pgx.Tx) error { return recoveredTx(ctx, tx, gone) })
}

// recoveredTx removes the rows of servers that have long been dead, and marks the others.
func recoveredTx(ctx context.Context, tx pgx.Tx, gone map[int64]query.ListServersRow) (err error) {
	for key, server := range gone {
		if server.LongDead {
			err = queries.UnregisterServer(ctx, tx, key)
		} else {
			err = queries.MarkServerDead(ctx, tx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gone returns the servers whose lock is free and that are due for a check. If a server's lock is held again, the server had
// only lost its connection, so gone removes its mark.
func (c *decider) gone(ctx context.Context) (gone map[int64]query.ListServersRow, err error) {
	gone = map[int64]query.ListServersRow{}
	err = c.in(ctx, func(tx pgx.Tx) error {
		servers, err := queries.ListServers(ctx, tx)
		for _, server := range servers {
			free := false
			if server.Key != int64(c.jobs.Server()) && err == nil {
				free, err = jobs.Server(server.Key).GoneTx(ctx, tx)
			}
			switch {
			case err != nil:
				return err
			case free && (!server.Dead || server.LongDead):
				gone[server.Key] = server
			case !free && server.Dead:
				err = queries.MarkServerAlive(ctx, tx, server.Key)
			}
		}
		return err
	})
	return gone, err
}

// servers returns the servers that may be running.
func (d *Dispatcher) servers(ctx context.Context) (list []jobs.Server, err error) {
	err = d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		all, err := queries.ListServers(ctx, tx)
		for _, server := range all {
			if !server.Dead {
				list = append(list, jobs.Server(server.Key))
			}
		}
		return err
	})
	return list, err
}
