package sandbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Reaper destroys sandboxes: on request, when no thread uses them, when their box is gone, and when a crash left work
// half done. It marks the record dead before it destroys the box, so that no thread uses a box that is being destroyed,
// and destroys no box whose record is not dead. It is safe for concurrent use.
type Reaper struct {
	db           *db.DB
	threads      *thread.Threads
	machines     *Machines
	sandboxes    *Sandboxes
	drivers      *drivers
	installation string
	logger       *slog.Logger
}

// Destroy deletes a sandbox's box with its files, and returns the sandbox, now dead. Destroying a dead sandbox
// succeeds. After a crash in between, [Reaper.Sweep] finds the box. If only another machine reaches the box, Destroy
// marks the record dead and returns an [*OtherMachineError], unless that machine is gone too.
func (r *Reaper) Destroy(ctx context.Context, scope db.Scope, id string) (Sandbox, error) {
	return r.destroy(ctx, scope, id, func(context.Context, pgx.Tx) (bool, error) { return true, nil })
}

// Reap destroys a sandbox that no thread uses. It does nothing if the sandbox is in use or does not exist.
func (r *Reaper) Reap(ctx context.Context, scope db.Scope, id string) error {
	_, err := r.destroy(ctx, scope, id, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		inUse, err := r.threads.OnSandboxTx(ctx, tx, id)
		return len(inUse) == 0, err
	})
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// destroy is [Reaper.Destroy] if allowed returns true. allowed is called while the record is locked, so that no thread
// gets the sandbox meanwhile.
func (r *Reaper) destroy(ctx context.Context, scope db.Scope, id string, allowed func(context.Context, pgx.Tx) (bool, error)) (box Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if box, err = r.sandboxes.lockTx(ctx, tx, id); err != nil {
			return err
		}
		if ok, err := allowed(ctx, tx); err != nil || !ok {
			return err
		}
		if err := r.sandboxes.markDeadTx(ctx, tx, id); err != nil {
			return err
		}
		box, err = r.sandboxes.getTx(ctx, tx, id)
		return err
	})
	if err != nil || box.Status != StatusDead {
		return box, err
	}
	if r.sandboxes.elsewhere(box) {
		return box, r.leaveToMachine(ctx, scope, box.Machine)
	}
	if box.Ref == "" {
		return box, nil // never built, or being built by a server that finds the record dead and discards the box
	}
	driver, err := r.drivers.get(box.Provider)
	if err != nil {
		return box, err
	}
	return box, driver.Destroy(ctx, box.Ref)
}

// leaveToMachine returns an [*OtherMachineError], unless the machine is gone.
func (r *Reaper) leaveToMachine(ctx context.Context, scope db.Scope, machine string) error {
	return r.db.In(ctx, scope, func(tx pgx.Tx) error {
		gone, err := r.machines.goneTx(ctx, tx, machine)
		if err == nil && !gone {
			err = &OtherMachineError{machine}
		}
		return err
	})
}

// Confirm asks the provider whether a sandbox's box exists, and marks the record dead if the answer is Gone. Unknown
// changes nothing, because a provider that cannot be asked says nothing about the box.
func (r *Reaper) Confirm(ctx context.Context, scope db.Scope, id string) (Liveness, error) {
	box, err := r.sandboxes.Sandbox(ctx, scope, id)
	switch {
	case err != nil:
		return Unknown, err
	case box.Status == StatusDead:
		return Gone, nil
	case box.Status == StatusPending || r.sandboxes.elsewhere(box):
		return Unknown, nil
	}
	driver, err := r.drivers.get(box.Provider)
	if err != nil {
		return Unknown, err
	}
	alive, err := driver.Probe(ctx, box.Ref)
	if err == nil && alive == Gone {
		err = r.db.In(ctx, scope, func(tx pgx.Tx) error { return r.sandboxes.markDeadTx(ctx, tx, id) })
	}
	return alive, err
}

// Sweep finishes what a crash left between a record and its box. It runs at the start of a server and logs its errors.
//
// It destroys a box whose record is dead. A box without a record is quarantined and never destroyed: the database may
// be an older copy, and the working tree somebody's work. The log names the quarantined boxes at each start.
func (r *Reaper) Sweep(ctx context.Context) {
	for name, driver := range r.drivers.all() {
		r.sweepDriver(ctx, name, driver)
	}
}

// providerSweep is how long the sweep of a provider's boxes may take, because a server waits for it at its start. The next
// start goes on with the rest.
const providerSweep = 20 * time.Second

// sweepDriver is Sweep for the boxes of one driver.
func (r *Reaper) sweepDriver(ctx context.Context, name string, driver Driver) {
	if _, here := driver.(Bound); !here {
		limited, cancel := context.WithTimeout(ctx, providerSweep)
		defer cancel()
		ctx = limited
	}
	boxes, err := driver.List(ctx, Labels{Installation: r.installation})
	if err != nil {
		r.logger.Warn("cannot list the sandboxes of a driver", "driver", name, "error", err)
		return
	}
	for _, b := range boxes {
		r.sweep(ctx, name, driver, b)
	}
}

// sweep is Sweep for one box.
func (r *Reaper) sweep(ctx context.Context, name string, driver Driver, b Box) {
	log := r.logger.With("driver", name, "sandbox", b.ID)
	box, err := r.sandboxes.Sandbox(ctx, db.Scope{House: b.Labels.House}, b.ID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		place, err := driver.Quarantine(ctx, b.Ref)
		if err != nil {
			log.Warn("cannot quarantine a sandbox that the database does not know", "error", err)
			return
		}
		log.Warn("the database does not know this sandbox: it is in quarantine. Nothing deletes it; "+
			"it returns when a database that knows it is restored. To give it up, delete its files",
			"files", place, "house", b.Labels.House, "thread", b.Labels.Thread, "created", b.CreatedAt)
	case err == nil && box.Status == StatusDead:
		if err := driver.Destroy(ctx, b.Ref); err != nil {
			log.Warn("cannot destroy a dead sandbox", "error", err)
		}
	case err == nil && b.Quarantined:
		log.Info("the database knows this quarantined sandbox again: its next command uses it")
	}
}
