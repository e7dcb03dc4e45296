package sandbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// tendedMost is how many sandboxes one look finds.
	tendedMost = 10_000
	// longestRest limits how long a sandbox is left alone after a failure.
	longestRest = 15 * time.Minute
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
	locks        *locks // those of builds
	trees        *trees
	quiet        time.Duration // [Config.SaveAfter]
	// named holds what this server has already logged: the refs of quarantined boxes, and the last complaints about
	// others.
	named sync.Map
	// turns are the turns of houses whose sandboxes are tended. tended are the houses that have a turn or wait for
	// one. rests are the pauses of sandboxes after a failure.
	turns  *slots
	tended sync.Map
	rests  rests
	// asking are the turns of houses that ask providers for all of their sandboxes.
	asking *slots
}

// Destroy saves a sandbox's files, deletes its box, and returns the sandbox, now dead. Destroying a dead sandbox
// succeeds. If the files cannot be saved, nothing is deleted, and the error is a [fault.Precondition]. After a crash
// in between, [Reaper.Sweep] finds the box. If only another machine reaches the box, Destroy marks the record dead and
// returns an [*OtherMachineError], and that machine saves the files. If that machine is gone, there is no error.
func (r *Reaper) Destroy(ctx context.Context, scope db.Scope, id string) (Sandbox, error) {
	box, err := r.sandboxes.Sandbox(ctx, scope, id)
	if err != nil {
		return box, err
	}
	if box.Status == StatusLive && !r.sandboxes.elsewhere(box) {
		unsaved, err := r.trees.save(ctx, box)
		if err != nil && fault.CodeOf(err) != fault.NotFound { // NotFound: the box is gone
			return box, fault.New(fault.CodeOf(err), "the files could not be saved: "+fault.From(err).Message, "try again, or delete the sandbox without saving: arbe sandbox delete --discard").Because(err)
		}
		if unsaved != "" {
			return box, fault.Newf(fault.Precondition, "copy what you need with arbe cp, then: arbe sandbox delete --discard "+id, "the files cannot be saved: %s", unsaved).WithReason(fault.TreeNotSaved)
		}
	}
	return r.Discard(ctx, scope, id)
}

// Discard is [Reaper.Destroy] without saving the files.
func (r *Reaper) Discard(ctx context.Context, scope db.Scope, id string) (Sandbox, error) {
	return r.destroy(ctx, scope, id, func(context.Context, pgx.Tx) (bool, error) { return true, nil })
}

// Reap destroys a sandbox that no thread uses, together with its files, which nobody could use any more. It does
// nothing if the sandbox is in use or does not exist. If the sandbox died while threads used it, Reap saves its files.
func (r *Reaper) Reap(ctx context.Context, scope db.Scope, id string) error {
	box, err := r.sandboxes.Sandbox(ctx, scope, id)
	if err == nil && box.Status == StatusDead && !r.sandboxes.elsewhere(box) {
		err = r.saveDead(ctx, box)
	}
	if err == nil {
		_, err = r.destroy(ctx, scope, id, func(ctx context.Context, tx pgx.Tx) (bool, error) {
			inUse, err := r.threads.OnSandboxTx(ctx, tx, id)
			return len(inUse) == 0, err
		})
	}
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// AlsoSaved records that a run has saved the tree of a sandbox with one repository. It does nothing unless the part
// applies to the cloned commit, because the commit that it names comes from a program in the sandbox.
func (r *Reaper) AlsoSaved(ctx context.Context, scope db.Scope, id string, part SavedPart) error {
	return r.trees.alsoSaved(ctx, scope, id, part)
}

// saveDead saves the files of a dead sandbox whose box may still be there. Files that cannot be saved are given up: a
// person deleted the sandbox, or its machine was away for so long that it counts as gone.
func (r *Reaper) saveDead(ctx context.Context, box Sandbox) error {
	unsaved, err := r.trees.save(ctx, box)
	if unsaved != "" {
		r.logger.WarnContext(ctx, "not all files of a dead sandbox could be saved", "sandbox", box.ID, "unsaved", unsaved)
	}
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// destroy is [Reaper.Destroy] if allowed returns true. allowed is called while the record is locked, so that no thread
// gets the sandbox in the meantime.
func (r *Reaper) destroy(ctx context.Context, scope db.Scope, id string, allowed func(context.Context, pgx.Tx) (bool, error)) (box Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if box, err = r.sandboxes.lockTx(ctx, tx, id); err != nil {
			return err
		}
		if ok, err := allowed(ctx, tx); err != nil || !ok {
			return err
		}
		if err := r.sandboxes.markDeadTx(ctx, tx, id, knownRemoved); err != nil {
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
	driver, err := r.drivers.of(ctx, box)
	if err != nil && box.OwnAccount && fault.From(err).Reason() == fault.SecretMissing {
		return box, nil // nobody can reach the box, so only its record can be given up
	}
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

const (
	// askedAtOnce is roughly how many sandboxes this server asks providers about concurrently, because houses share
	// the operator's account. askTimeout limits the time for those of one house.
	askedAtOnce, askTimeout = 8, 30 * time.Second
)

// Reconciled is the provider's answer about a sandbox.
type Reconciled struct {
	Sandbox
	Liveness Liveness
}

// Reconcile is [Reaper.Confirm] for all sandboxes of the scope's house that count as live. Sandboxes that cannot be
// checked in time are Unknown.
func (r *Reaper) Reconcile(ctx context.Context, scope db.Scope) (list []Reconciled, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := r.sandboxes.q.LiveSandboxesIn(ctx, tx, scope.House, askedMost)
		for _, row := range rows {
			box, _ := sandboxFrom(row, nil)
			list = append(list, Reconciled{box, Unknown})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for i := range list {
		release, err := r.asking.acquire(bounded, scope.House)
		if err != nil {
			break // the rest is unknown
		}
		asking.Go(func() {
			defer release()
			alive, err := r.Confirm(bounded, scope, list[i].ID)
			if err != nil {
				r.complain(ctx, list[i].ID, "cannot find out whether a sandbox exists", err)
				return
			}
			if list[i].Liveness = alive; alive == Gone {
				list[i].Status = StatusDead
			}
		})
	}
	asking.Wait()
	return list, ctx.Err()
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
	driver, err := r.drivers.of(ctx, box)
	if err != nil {
		return Unknown, err
	}
	alive, err := driver.Probe(ctx, box.Ref)
	if err == nil && alive == Gone {
		err = r.db.In(ctx, scope, func(tx pgx.Tx) error { return r.sandboxes.markDeadTx(ctx, tx, id, knownStopped) })
	}
	return alive, err
}

// Sweep finishes work on records and boxes that a crash interrupted. It runs at the start of a server and then
// regularly. It logs its errors.
//
// It destroys a box whose record is dead, after saving its files if that was not done. It destroys a box whose
// build was cut off. A box without a record is quarantined and never destroyed: the database may be an older copy, and
// the working tree somebody's work. If its thread exists, the box's files are also saved for it. The log names the
// quarantined boxes once after each start. A live record whose box is not in the provider's list is confirmed, see
// [Reaper.Confirm]. Cached files that are too old are deleted, and those of environments that no
// longer exist. The meters of boxes are read.
func (r *Reaper) Sweep(ctx context.Context) {
	for name, driver := range r.drivers.all() {
		r.sweepOperators(ctx, name, driver, sweepTime)
	}
}

// sweepTime limits the sweep of a driver's boxes, because a server waits for it at its start, and a box can make the
// saving of its files slow on purpose. Later sweeps do the rest.
const sweepTime = 20 * time.Second

// swept is where boxes are swept: a driver and, for a house's own account, the house.
type swept struct {
	name   string
	driver Driver
	house  string
	own    bool
}

// sweepOperators is Sweep for a driver's boxes in the operator's account.
func (r *Reaper) sweepOperators(ctx context.Context, name string, driver Driver, limit time.Duration) {
	if err := r.sweepDriver(ctx, swept{name: name, driver: driver}, limit); err != nil {
		r.logger.Warn("cannot list the sandboxes of a driver", "driver", name, "error", err)
	}
	r.sweepLayers(ctx, name, driver)
}

// sweepDriver is Sweep for the boxes of one driver. A house's own account may hold anything, so only boxes of that
// house are swept there.
func (r *Reaper) sweepDriver(ctx context.Context, in swept, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked, err := r.trees.now(ctx) // boxes may start and stop while the list is made
	if err != nil {
		return err
	}
	boxes, err := in.driver.List(ctx, Labels{Installation: r.installation, House: in.house})
	if err != nil {
		return err
	}
	for _, b := range boxes {
		r.sweep(ctx, in, b, asked)
	}
	r.confirmAbsent(ctx, in, boxes)
	return nil
}

// sweep is Sweep for one box of a list that was asked for at a moment.
func (r *Reaper) sweep(ctx context.Context, in swept, b Box, asked time.Time) {
	driver := in.driver
	log := r.logger.With("driver", in.name, "sandbox", b.ID)
	box, err := r.sandboxes.Sandbox(ctx, db.Scope{House: b.Labels.House}, b.ID)
	switch {
	case err == nil && box.OwnAccount != in.own:
		log.Warn("another account has a sandbox of the same name; it is left alone", "house", b.Labels.House)
	case fault.CodeOf(err) == fault.NotFound:
		if _, before := r.named.LoadOrStore(b.Ref, true); before && b.Quarantined {
			return
		}
		r.quarantine(ctx, log, driver, b)
	case err == nil && box.Status == StatusDead:
		if err := r.saveUnsaved(ctx, box); err != nil {
			log.Warn("the files of a dead sandbox could not be saved, so it is not destroyed yet", "error", fault.From(err).Detail())
		} else if err := driver.Destroy(ctx, b.Ref); err != nil {
			log.Warn("cannot destroy a dead sandbox", "error", err)
		}
	case err == nil && box.Status == StatusPending:
		if err := r.discardUnfinished(ctx, driver, b, box); err != nil {
			log.Warn("cannot destroy a sandbox whose build was cut off", "error", err)
		}
	case err == nil && !b.Quarantined:
		r.sandboxes.read(ctx, db.Scope{House: box.House}, box.ID, b.Meter, asked)
	case err == nil:
		log.Info("the database knows this quarantined sandbox again: its next command uses it")
	}
}

// quarantine puts a box that the database does not know into quarantine.
func (r *Reaper) quarantine(ctx context.Context, log *slog.Logger, driver Driver, b Box) {
	if !b.Quarantined {
		if err := r.trees.saveUnknown(ctx, driver, b); err != nil {
			log.Warn("the files of a sandbox that the database does not know were not saved for its thread; they stay in quarantine", "error", fault.From(err).Detail())
		}
	}
	place, err := driver.Quarantine(ctx, b.Ref)
	if err != nil {
		log.Warn("cannot quarantine a sandbox that the database does not know", "error", err)
		return
	}
	log.Warn("the database does not know this sandbox: it is in quarantine. Nothing deletes it; "+
		"it returns when a database that knows it is restored. To give it up, delete its files",
		"files", place, "house", b.Labels.House, "thread", b.Labels.Thread, "created", b.CreatedAt)
}

// saveUnsaved is [Reaper.saveDead] for a sandbox that was used after it was last saved.
func (r *Reaper) saveUnsaved(ctx context.Context, box Sandbox) error {
	// The time limit of a sweep would be too short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	tree, err := r.sandboxes.Tree(ctx, db.Scope{House: box.House}, box.ID)
	if err != nil || !tree.UsedAt.After(tree.SavedAt) {
		return err
	}
	return r.saveDead(ctx, box)
}

// discardUnfinished destroys a box whose build was cut off. If the build continues, its server has the lock. The record
// of a diagnosis is deleted too; the record of another sandbox stays, because its threads find it and build it again.
func (r *Reaper) discardUnfinished(ctx context.Context, driver Driver, b Box, box Sandbox) error {
	unlock, free, err := r.locks.tryLock(ctx, box.ID)
	if err != nil || !free {
		return err
	}
	defer unlock()
	scope := db.Scope{House: box.House}
	// The build may have ended since the record was read.
	if box, err = r.sandboxes.Sandbox(ctx, scope, box.ID); err != nil || box.Status != StatusPending {
		return err
	}
	if err := driver.Destroy(ctx, b.Ref); err != nil {
		return err
	}
	return r.db.In(ctx, scope, func(tx pgx.Tx) error {
		on, err := r.threads.OnSandboxTx(ctx, tx, box.ID)
		if err != nil || len(on) > 0 || box.Replaces != "" {
			return err
		}
		return r.sandboxes.deleteTx(ctx, tx, box.ID)
	})
}

// sweepLayers drops layers that are too old, and layers of environments that no longer exist. A layer may contain
// secrets that have been revoked.
func (r *Reaper) sweepLayers(ctx context.Context, name string, driver Driver) {
	layered, ok := driver.(Layered)
	if !ok {
		return
	}
	list, err := layered.Layers(ctx, Labels{Installation: r.installation})
	if err != nil {
		r.logger.Warn("cannot list the cached environments of a driver", "driver", name, "error", err)
	}
	for _, l := range list {
		if !l.Old {
			_, err := r.trees.environments.Environment(ctx, db.Scope{House: l.Labels.House}, l.Labels.Environment)
			if fault.CodeOf(err) != fault.NotFound {
				continue
			}
		}
		if err := layered.DropLayer(ctx, l.ID); err != nil {
			r.logger.Warn("cannot delete the cached files of an environment", "driver", name, "environment", l.Labels.Environment, "error", err)
		}
	}
}

// complain logs a problem of a sandbox, unless it equals the last one of its kind.
func (r *Reaper) complain(ctx context.Context, id, what string, err error) {
	if last, _ := r.named.Swap(id+"\x00"+what, err.Error()); last == err.Error() || ctx.Err() != nil {
		return
	}
	r.logger.WarnContext(ctx, what, "sandbox", id, "error", fault.From(err).Detail())
}

// rests are pauses after failures. Each pause is twice as long as the last. The zero value has none. It is safe for
// concurrent use.
type rests struct {
	mu   sync.Mutex
	each map[string]rest
}

type rest struct {
	length time.Duration
	until  time.Time
}

func (r *rests) begin(name string, first time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.each == nil || len(r.each) >= tendedMost { // it also has entries of sandboxes that are gone
		r.each = map[string]rest{}
	}
	length := min(max(first, 2*r.each[name].length), longestRest)
	r.each[name] = rest{length, time.Now().Add(length)}
}

func (r *rests) over(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.each[name].until)
}

func (r *rests) end(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.each, name)
}
