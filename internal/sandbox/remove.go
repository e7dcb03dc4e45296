package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// RemoveAll destroys all sandboxes of the scope's house without saving their files, and deletes their records. The house
// must be deleted, so that nothing creates another one. An [*OtherMachineError] means that the rest is on that machine. A
// [fault.Unavailable] means that a server still builds one. After any error, call it again.
func (r *Reaper) RemoveAll(ctx context.Context, scope db.Scope) error {
	const most = 100
	var elsewhere error
	for newest := (db.Cursor{Time: time.Now().AddDate(1, 0, 0)}); ; {
		list, err := r.sandboxes.ListSandboxes(ctx, scope, Filter{}, newest, most)
		if err != nil {
			return err
		}
		for _, box := range list {
			err := r.remove(ctx, scope, box.ID)
			if _, away := errors.AsType[*OtherMachineError](err); away {
				elsewhere = err // first those that this server reaches
			} else if err != nil && fault.CodeOf(err) != fault.NotFound {
				return err
			}
			newest = db.Cursor{Time: box.CreatedAt, ID: box.ID}
		}
		if len(list) < most {
			return elsewhere
		}
	}
}

// remove destroys a sandbox and deletes its record.
func (r *Reaper) remove(ctx context.Context, scope db.Scope, id string) error {
	// The record is dead from here on, so that a server that builds the box discards it.
	if _, err := r.Discard(ctx, scope, id); err != nil {
		return err
	}
	unlock, free, err := r.locks.tryLock(ctx, id)
	if err != nil {
		return err
	}
	if !free {
		return fault.New(fault.Unavailable, "a server still builds the sandbox "+id, "try again in a moment")
	}
	defer unlock()
	if _, err := r.Discard(ctx, scope, id); err != nil { // the build may have made the box meanwhile
		return err
	}
	return r.db.In(ctx, scope, func(tx pgx.Tx) error { return r.sandboxes.deleteTx(ctx, tx, id) })
}
