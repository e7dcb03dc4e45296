package sandbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// maxTendEach is the longest time between two looks for unused sandboxes.
	maxTendEach = time.Minute
	// machineSweepTime limits a sweep of the boxes of this machine. It can be long, because nobody waits for it.
	machineSweepTime = 30 * time.Minute
	// tendTime limits the time that a look spends on one house, and treeTime the time that it spends on one sandbox.
	tendTime, treeTime = 3 * time.Minute, 10 * time.Minute
)

// Tend keeps sandboxes in use awake, saves the working trees of sandboxes that are no longer used, deletes ephemeral ones that no thread needs, writes large
// files of messages to sandboxes, and sweeps the boxes of this machine, until end is called. Each server does this for the sandboxes that it reaches. The
// first look comes late enough for commands that outlived the last server to be found first.
func (r *Resolver) Tend(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	each := func(pause time.Duration, do func()) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do()
			}
		}
	}
	look := func() {
		r.Reaper.Measure(ctx)
		r.Reaper.SaveIdle(ctx)
		r.Reaper.ReapSpare(ctx)
	}
	// The next look does not wait for a house that an earlier look is still working on.
	work.Go(func() { each(min(maxTendEach, r.Reaper.quiet), func() { work.Go(look) }) })
	// Nor does it wait for a provider that is slow.
	work.Go(func() { each(awakeLook, func() { work.Go(func() { r.KeepAwake(ctx) }) }) })
	work.Go(func() { each(sweepEach, func() { r.Reaper.sweepMachine(ctx) }) })
	r.files.inBackground(func(do func(context.Context)) { work.Go(func() { do(ctx) }) })
	return func() { r.files.inBackground(nil); cancel(); work.Wait() }
}

// sweepMachine is [Reaper.Sweep] for the boxes that are bound to this machine. No other server sees them.
func (r *Reaper) sweepMachine(ctx context.Context) {
	for name, driver := range r.drivers.all() {
		if r.drivers.machine(name) != "" {
			r.sweepOperators(ctx, name, driver, machineSweepTime)
		}
	}
}

// Measure records the disk space that sandboxes and cached environments use on this server's machines.
func (r *Reaper) Measure(ctx context.Context) {
	for name, driver := range r.drivers.all() {
		measured, ok := driver.(Measured)
		if !ok {
			continue
		}
		houses, err := measured.Occupied(ctx)
		for house, o := range houses {
			if house == "" {
				continue
			}
			err = errors.Join(err, r.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error { return r.recordTx(ctx, tx, house, measured.Machine(), o) }))
		}
		if err != nil {
			r.complain(ctx, name, "cannot record what sandboxes take up of the disk", err)
		}
	}
}

// recordTx records the disk space that a house uses on a machine. It skips a house that the database does not know.
func (r *Reaper) recordTx(ctx context.Context, tx pgx.Tx, house, machine string, o Occupied) error {
	var there bool
	if err := tx.QueryRow(ctx, "select exists (select from houses where id = $1)", house).Scan(&there); err != nil || !there {
		return err
	}
	ids, bytes := make([]string, 0, len(o.Boxes)), make([]int64, 0, len(o.Boxes))
	for id, n := range o.Boxes {
		ids, bytes = append(ids, id), append(bytes, n)
	}
	return errors.Join(
		r.sandboxes.q.RecordDisks(ctx, tx, ids, bytes),
		r.sandboxes.q.RecordHouseDisk(ctx, tx, query.RecordHouseDiskParams{HouseID: house, MachineID: machine, CachedBytes: o.Layers, MostBytes: o.Most}),
	)
}

// SaveIdle saves the working trees of sandboxes that have become idle. A box that is stopped when idle keeps its
// files, but a saved tree also survives the box.
func (r *Reaper) SaveIdle(ctx context.Context) {
	r.tend(ctx, r.sandboxes.q.UnsavedSandboxes, "the files of a sandbox could not be saved", r.saveIdle)
}

func (r *Reaper) saveIdle(ctx context.Context, box Sandbox) error {
	scope := db.Scope{House: box.House}
	if tree, err := r.sandboxes.Tree(ctx, scope, box.ID); err == nil && !tree.UsedAt.After(tree.SavedAt) {
		return nil // another server was faster
	}
	return r.saveWhole(ctx, box)
}

// saveWhole saves a tree. Unsaved files are an error; a box that is gone is not.
func (r *Reaper) saveWhole(ctx context.Context, box Sandbox) error {
	unsaved, err := r.trees.save(ctx, box)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		_, err = r.Confirm(ctx, db.Scope{House: box.House}, box.ID)
	case err == nil && unsaved != "":
		err = errors.New(unsaved)
	}
	return err
}

// ReapSpare deletes ephemeral sandboxes that have no running thread and no other use, once their files are saved.
// Their threads get the files back in the next sandbox.
func (r *Reaper) ReapSpare(ctx context.Context) {
	r.tend(ctx, r.sandboxes.q.SpareSandboxes, "a sandbox that no thread needs was not deleted", r.reapSpare)
}

func (r *Reaper) reapSpare(ctx context.Context, box Sandbox) error {
	scope := db.Scope{House: box.House}
	if err := r.saveWhole(ctx, box); err != nil {
		return err
	}
	_, err := r.destroy(ctx, scope, box.ID, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tree, err := r.sandboxes.treeTx(ctx, tx, box.ID)
		if err != nil || tree.UsedAt.After(tree.SavedAt.Add(-r.quiet)) {
			return false, err // somebody came back
		}
		running, err := r.threads.RunningOnSandboxTx(ctx, tx, box.ID)
		return !running, err
	})
	return err
}

// finds is a query for sandboxes of all houses, each as house/id.
type finds func(ctx context.Context, tx query.DBTX, machines []string, quiet float64, most int32) ([]string, error)

// tend calls do with the sandboxes that a query finds. Houses have turns of limited time, several at once, and a
// sandbox whose turn failed is left alone for a while. So a house whose sandboxes are slow, or fail each time, delays
// no other.
func (r *Reaper) tend(ctx context.Context, find finds, failed string, do func(context.Context, Sandbox) error) {
	var names []string
	err := r.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		names, err = find(ctx, tx, r.machines.MachineIDs(), r.quiet.Seconds(), tendedMost)
		return err
	})
	if err != nil {
		r.complain(ctx, "", "cannot look for sandboxes that nobody uses", err)
		return
	}
	var houses []string
	ids := map[string][]string{}
	for _, name := range names {
		house, id, _ := strings.Cut(name, "/")
		if r.rests.over(failed + id) {
			if len(ids[house]) == 0 {
				houses = append(houses, house)
			}
			ids[house] = append(ids[house], id)
		}
	}
	var all sync.WaitGroup
	for _, house := range houses {
		if _, before := r.tended.LoadOrStore(house, true); before {
			continue // an earlier look is still working on it
		}
		all.Go(func() {
			defer r.tended.Delete(house)
			release, err := r.turns.acquire(ctx, house)
			if err != nil {
				return
			}
			defer release()
			r.tendHouse(ctx, house, ids[house], failed, do)
		})
	}
	all.Wait()
}

// tendHouse is tend for the sandboxes of one house, within its time.
func (r *Reaper) tendHouse(ctx context.Context, house string, ids []string, failed string, do func(context.Context, Sandbox) error) {
	for began := time.Now(); len(ids) > 0 && time.Since(began) < tendTime && ctx.Err() == nil; ids = ids[1:] {
		limited, cancel := context.WithTimeout(ctx, treeTime)
		box, err := r.sandboxes.Sandbox(limited, db.Scope{House: house}, ids[0])
		if err == nil && box.Status == StatusLive {
			err = do(limited, box)
		}
		cancel()
		if err == nil || fault.CodeOf(err) == fault.NotFound {
			r.rests.end(failed + ids[0])
			continue
		}
		r.complain(ctx, ids[0], failed, err)
		r.rests.begin(failed+ids[0], min(maxTendEach, r.quiet))
	}
}
