package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/trace"
)

const (
	// buildsAtOnce is how many boxes one server builds at the same time. It is large, because a build mostly waits for
	// a registry or a setup script.
	buildsAtOnce = 32
	// recordTimeout is how long a server tries to record the result of a build while the database is unreachable, and
	// recordRetry the pause between attempts.
	recordTimeout, recordRetry = time.Minute, 200 * time.Millisecond
)

// errChanged reports that a sandbox, or a thread's choice of sandbox, changed during the work on it, so it must be
// looked up again.
var errChanged = errors.New("the thread's sandbox changed meanwhile")

// builds builds the boxes of pending sandboxes. Each is built once by one server, however many callers ask for it. It
// is safe for concurrent use.
type builds struct {
	db           *db.DB
	log          *stream.Log
	threads      *thread.Threads
	environments *Environments
	sandboxes    *Sandboxes
	drivers      *drivers
	maxima       Maxima
	preparation  preparation
	trees        *trees
	secrets      *secret.Secrets
	installation string // a label of each box
	door         string // [Config.Door]
	observe      func(driver string, err error, took time.Duration)
	logger       *slog.Logger

	running *runningBuilds
	slots   *slots
	locks   *locks
}

// build builds the box of a pending sandbox and returns the sandbox, live. Concurrent callers get the same result. If
// another server built it, it may be on another machine. The error is errChanged for a sandbox that was destroyed
// before its build began, and a [fault.Aborted] for one that was destroyed during it.
//
// If the build fails, nothing of the box remains, and the next call tries again. In any case the steps of the
// preparation are written to the thread's log.
func (b *builds) build(ctx context.Context, scope db.Scope, threadID, id string) (Sandbox, error) {
	return b.running.do(ctx, id, func(ctx context.Context) (Sandbox, error) { return b.buildAlone(ctx, scope, threadID, id) })
}

// buildAlone is build for the single caller on this server. A lock in the database makes other servers wait for the
// result.
func (b *builds) buildAlone(ctx context.Context, scope db.Scope, threadID, id string) (Sandbox, error) {
	release, err := b.slots.acquire(ctx, scope.House)
	if err != nil {
		return Sandbox{}, err
	}
	defer release()
	unlock, err := b.locks.lock(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer unlock()
	box, err := b.sandboxes.Sandbox(ctx, scope, id)
	switch {
	case fault.CodeOf(err) == fault.NotFound || box.Status == StatusDead:
		return Sandbox{}, errChanged // another server gave it up
	case err != nil || box.Status == StatusLive:
		return box, err
	}
	env, err := b.environments.Environment(ctx, scope, box.Environment)
	if err != nil {
		return Sandbox{}, err
	}
	driver, err := b.drivers.of(ctx, box)
	if err != nil {
		return Sandbox{}, err
	}
	began := time.Now()
	building, span := trace.Start(ctx, trace.Client, "sandbox build", trace.String("arbe.sandbox.driver", box.Provider))
	made, err := b.make(building, driver, threadID, box, env)
	span.End(err)
	if b.observe != nil {
		b.observe(box.Provider, err, time.Since(began))
	}
	// Record the result even if nobody waits for it any more. Otherwise the box would be lost.
	ctx = context.WithoutCancel(ctx)
	box, recordErr := b.record(ctx, scope, threadID, box, made)
	if made.ready && recordErr == nil && box.Ref != made.ref {
		b.discard(ctx, driver, made.ref, id)
		if box.Status == StatusDead {
			recordErr = fault.New(fault.Aborted, "the sandbox was destroyed while it was being created", "run the command again")
		}
	}
	return box, errors.Join(err, recordErr)
}

// outcome is the result of a build.
type outcome struct {
	ref   string
	steps []entry.PreparationStep // for the thread's log
	boot  []entry.PreparationStep // all steps
	ready bool                    // the box was created and prepared
	// restored says which files the box begins with; nil for those of its recipe. commits are the cloned commits, by
	// folder.
	restored *restoring
	commits  map[string]string
	// defaults are what the repository says about the use of the box.
	defaults Defaults
	clock    clock
}

// make creates and prepares a box. If it fails, it destroys the box.
func (b *builds) make(ctx context.Context, d Driver, threadID string, box Sandbox, env Environment) (made outcome, err error) {
	// The operator may have lowered the maxima since the recipe was checked and saved.
	recipe, over := b.maxima.reduce(env.Recipe)
	if len(over) > 0 {
		made.steps = append(made.steps, entry.PreparationStep{Name: entry.ReducedLimits, Output: describe(over)})
	}
	received, err := b.secrets.Receive(ctx, box.House, recipe.Secrets)
	if err != nil {
		return made, err
	}
	if err := b.discardUnfinished(ctx, d, box); err != nil {
		return made, err
	}
	if made.restored, err = b.trees.restore(ctx, box); err != nil {
		return made, err
	}
	out := b.progress(ctx, threadID, box)
	defer out.close()
	p := &preparing{
		preparation: b.preparation, ctx: ctx, of: box, driver: d, recipe: recipe, watch: out, received: received, restoring: made.restored,
		cached: b.cached(d, env, made.restored), commits: map[string]string{},
	}
	if err = b.makeBox(p, &made.clock, box, env, threadID); errors.Is(err, errOtherBox) {
		// Another box cannot have the files of this one, because they depend on its image.
		recipe, over := b.maxima.reduce(p.wanted)
		if len(over) > 0 {
			made.steps = append(made.steps, entry.PreparationStep{Name: entry.ReducedLimits, Output: describe(over)})
		}
		if made.restored != nil {
			made.restored.parts = nil
		}
		p = &preparing{
			preparation: b.preparation, ctx: ctx, of: box, driver: d, recipe: recipe, chosen: true, watch: out, received: received, restoring: made.restored,
			cached: b.cached(d, env, made.restored), commits: map[string]string{}, boot: p.boot,
		}
		err = b.makeBox(p, &made.clock, box, env, threadID)
	}
	made.ref, made.steps, made.boot, made.commits, made.ready = p.ref, append(made.steps, p.steps...), p.boot, p.commits, err == nil
	made.defaults = p.own.Defaults
	return made, err
}

// makeBox creates a box and prepares it. If that fails, it destroys the box.
func (b *builds) makeBox(p *preparing, c *clock, box Sandbox, env Environment, threadID string) (err error) {
	p.watch.step("start a sandbox")
	began := time.Now()
	p.ref, err = p.driver.Create(p.ctx, b.spec(box, env, p.recipe, threadID))
	created := entry.PreparationStep{Name: "create", DurationMS: time.Since(began).Milliseconds()}
	if err != nil {
		created.ExitCode, created.Output = -1, fault.From(err).Message
	}
	p.boot = append(p.boot, created)
	if err != nil {
		return err
	}
	c.start(p.ctx, p.driver, p.ref)
	if err = p.run(); err != nil {
		b.discard(p.ctx, p.driver, p.ref, box.ID)
		c.stop()
	}
	return err
}

// spec describes the box of a sandbox to its driver.
func (b *builds) spec(box Sandbox, env Environment, recipe Recipe, threadID string) Spec {
	return Spec{
		ID: box.ID, Image: recipe.Image, Limits: recipe.Limits, Door: b.door,
		Labels: Labels{Installation: b.installation, House: box.House, Thread: threadID, Environment: env.ID}, Egress: b.maxima.egress(b.drivers.egress(recipe)),
	}
}

// progress returns a writer that shows the output of a build to watchers of the thread.
func (b *builds) progress(ctx context.Context, threadID string, box Sandbox) *progress {
	log := stream.Ref{House: box.House, Name: thread.StreamName(threadID)}
	return newProgress(func(offset int64, data []byte) {
		// Losing a piece is harmless, because the entry holds the end of each step's output.
		_ = b.log.Publish(context.WithoutCancel(ctx), log, stream.Delta{EntryID: entry.PreparationID(box.ID), Offset: offset, Data: data})
	})
}

// discardUnfinished destroys the box that a killed server left unfinished. Create is idempotent by id, so it would
// otherwise return that box, which may be only partly prepared.
func (b *builds) discardUnfinished(ctx context.Context, d Driver, box Sandbox) error {
	left, err := d.List(ctx, Labels{Installation: b.installation, House: box.House, Environment: box.Environment})
	if err != nil {
		return err
	}
	for _, l := range left {
		if l.ID == box.ID {
			if err := d.Destroy(ctx, l.Ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard destroys an unused box. A failure is only logged, because [Reaper.Sweep] finds the box later.
func (b *builds) discard(ctx context.Context, d Driver, ref, id string) {
	if err := d.Destroy(context.WithoutCancel(ctx), ref); err != nil {
		b.logger.Warn("cannot destroy a sandbox that will not be used", "sandbox", id, "error", err)
	}
}

// record writes the result of a build to the sandbox's record and the thread's log, and returns the sandbox. It retries
// while the database is unreachable, because the build may have taken long and would otherwise be lost.
func (b *builds) record(ctx context.Context, scope db.Scope, threadID string, box Sandbox, made outcome) (Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for {
		recorded := box
		err := b.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			if recorded, err = b.recordTx(ctx, tx, box, made); err != nil {
				return err
			}
			if err := b.logTx(ctx, tx, threadID, box.ID, made.steps); err != nil {
				return err
			}
			return b.sandboxes.countTx(ctx, tx, box, &made.clock, recorded.Status == StatusLive && recorded.Ref == made.ref)
		})
		if fault.CodeOf(err) != fault.Unavailable {
			return recorded, err
		}
		select {
		case <-time.After(recordRetry):
		case <-ctx.Done():
			return box, err
		}
	}
}

// recordTx is record for the sandbox's record.
func (b *builds) recordTx(ctx context.Context, tx pgx.Tx, box Sandbox, made outcome) (Sandbox, error) {
	now, err := b.sandboxes.lockTx(ctx, tx, box.ID)
	if fault.CodeOf(err) == fault.NotFound || now.Status == StatusDead {
		box.Status = StatusDead // destroyed while it was being built
		return box, nil
	} else if err != nil {
		return box, err
	}
	// Another server may have built it, after this server's connection broke and released the lock. Or this server
	// did, and the answer to its commit was lost.
	if now.Status == StatusLive {
		return now, nil
	}
	if made.ready {
		return b.recordReadyTx(ctx, tx, box, made)
	}
	box.Status = StatusDead
	if failed := len(made.steps) > 0 && made.steps[len(made.steps)-1].ExitCode != 0; failed && box.Replaces != "" {
		// The threads stay on the sandbox that it was to replace. Its record keeps the log of the failure.
		return box, errors.Join(b.sandboxes.recordBootTx(ctx, tx, box, Tree{Steps: made.boot}), b.sandboxes.markDeadTx(ctx, tx, box.ID, knownStopped))
	}
	sharing, err := b.threads.OnSandboxTx(ctx, tx, box.ID)
	if err != nil {
		return box, err
	}
	if len(sharing) > 1 { // the record stays, so that the threads stay together and get the next one together
		return box, b.sandboxes.markDeadTx(ctx, tx, box.ID, knownStopped)
	}
	return box, b.sandboxes.deleteTx(ctx, tx, box.ID)
}

// recordReadyTx is record for a box that is ready. The threads of the replaced sandbox move to it, and their logs
// name the files that it begins with.
func (b *builds) recordReadyTx(ctx context.Context, tx pgx.Tx, box Sandbox, made outcome) (Sandbox, error) {
	box, err := b.sandboxes.markLiveTx(ctx, tx, box, made.ref)
	if err != nil {
		return box, err
	}
	box.Defaults = made.defaults
	if err := b.sandboxes.recordDefaultsTx(ctx, tx, box.ID, made.defaults); err != nil {
		return box, err
	}
	tree := made.restored.saved()
	tree.commits, tree.Steps = made.commits, made.boot
	if err := b.sandboxes.recordBootTx(ctx, tx, box, tree); err != nil || box.Replaces == "" {
		return box, err
	}
	said := made.restored.words(box)
	moved, err := b.moveTx(ctx, tx, box, said)
	switch {
	case err != nil:
		return box, err
	case moved == 0: // the threads were deleted in the meantime, so nobody would use it
		return Sandbox{ID: box.ID, Status: StatusDead}, b.sandboxes.markDeadTx(ctx, tx, box.ID, knownStopped)
	}
	return box, b.sandboxes.keepNamedTx(ctx, tx, box, said)
}

// moveTx moves threads from a sandbox to its replacement and returns their number: all of them together, or only the
// thread for which the replacement was built.
func (b *builds) moveTx(ctx context.Context, tx pgx.Tx, box Sandbox, said entry.SandboxResumed) (moved int, err error) {
	var logs []stream.Ref
	if box.ReplacesFor != "" {
		logs, err = b.threads.MoveThreadTx(ctx, tx, box.House, box.ReplacesFor, box.Replaces, box.ID)
	} else {
		logs, err = b.threads.MoveSandboxTx(ctx, tx, box.House, box.Replaces, box.ID)
	}
	for _, log := range logs {
		if _, err := b.log.AppendTx(ctx, tx, log, entry.NewDraft("", "", said)); err != nil {
			return 0, err
		}
	}
	return len(logs), err
}

// logTx is record for the thread's log.
func (b *builds) logTx(ctx context.Context, tx pgx.Tx, threadID, id string, steps []entry.PreparationStep) error {
	if len(steps) == 0 {
		return nil
	}
	th, err := b.threads.GetTx(ctx, tx, threadID)
	if fault.CodeOf(err) == fault.NotFound {
		return nil // deleted in the meantime with its log, which must not undo the result of the build
	} else if err != nil {
		return err
	}
	// The entry's id makes repeating this harmless.
	prepared := entry.NewDraft(entry.PreparationID(id), "", entry.EnvironmentPrepared{SandboxID: id, Steps: steps})
	_, err = b.log.AppendTx(ctx, tx, th.Stream(), prepared)
	return err
}

// cached returns the use of cached environments for a new box.
func (b *builds) cached(d Driver, env Environment, restored *restoring) cached {
	layered, ok := d.(Layered)
	states, said := d.(Stating)
	if !ok || !said || !states.Guarantees().Layers || restored != nil {
		return cached{}
	}
	return cached{layers: layered, rebuilds: env.rebuilds, logger: b.logger}
}
