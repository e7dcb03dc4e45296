package sandbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"fmt"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// defaultSaveAfter is how long after its last use the working tree of a sandbox is saved.
	defaultSaveAfter = 2 * time.Minute
	// tendedAtOnce is how many houses are tended concurrently.
	tendedAtOnce = 8
)

// Config configures a [Resolver] and everything that it uses.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	// Drivers are the drivers by name. Unavailable are those that this server cannot use, and why; one may become ready
	// later, with [Resolver.DriverStarted].
	Drivers     map[string]Driver
	Unavailable map[string]error
	// Wanted is called with the name of an unavailable driver that somebody wants to use. It must be quick. Defaults to
	// nil.
	Wanted func(driver string)
	// Accounts describe how houses bring their own keys, by the names of drivers. They need Secrets. Defaults to
	// none.
	Accounts map[string]Account
	// RepoRoots are directories of this machine whose git repositories recipes may name. The operator chooses them.
	// Defaults to none.
	RepoRoots []string
	// Installation is the identity of the database. Boxes have it as a label, and [Reaper.Sweep] ignores boxes of other
	// installations. If it is empty, every box matches.
	Installation string
	// MachineGone is how long a machine must be without a report before its sandboxes count as dead. Defaults to 24
	// hours.
	MachineGone time.Duration
	// Maxima limit the requests of recipes and commands. Defaults to no limits.
	Maxima Maxima
	// Secrets are the secrets that recipes bind. Required if any recipe binds one.
	Secrets *secret.Secrets
	// Door is the origin at which the internet reaches this server, for boxes whose driver does not connect them to it
	// itself; see [Doored] and [Relaying]. Defaults to "": they reach no door.
	Door string
	// GitToken returns a token with which git in a sandbox asks the server's door for git at Door. Defaults to nil: only the
	// boxes of [Doored] drivers reach that door.
	GitToken func(house, sandbox string) (string, error)
	// Artifacts stores the working trees of sandboxes, from which their replacements begin, and the files of messages.
	// Defaults to nil: the trees are lost with their sandboxes, and messages have no files.
	Artifacts *artifact.Artifacts
	// SaveAfter is how long after its last use the working tree of a sandbox is saved. Defaults to two minutes.
	SaveAfter time.Duration
	// Observe is called when a sandbox was built or a build failed. It must be quick. Defaults to nil.
	Observe func(driver string, err error, took time.Duration)
	// Logger logs errors outside requests.
	Logger *slog.Logger
}

// Resolver finds the right sandbox for a thread, so that nobody has to choose one. A live sandbox is used. A dead one
// is replaced for every thread that was on it. If there is none, one is built from the requested environment, otherwise
// the thread's, otherwise the house's.
//
// It embeds the types that it is built on. Code that needs only one of them uses that one.
//
// It is safe for concurrent use, also by several servers on one database.
type Resolver struct {
	*Environments
	*Machines
	*Sandboxes
	*Reaper

	db      *db.DB
	log     *stream.Log
	threads *thread.Threads
	drivers *drivers
	maxima  Maxima
	door    string // [Config.Door]
	builds  *builds
	files   *attached
	git     *gitAccess
	awake   *awake
	logger  *slog.Logger
	// refusals has the function that reports the connections that drivers refuse.
	refusals *refusals
	// elsewhere reaches sandboxes of other machines; nil if nothing does.
	elsewhere Elsewhere
}

// NewResolver returns a Resolver and everything that it uses.
func NewResolver(c Config) *Resolver {
	q := query.New()
	drivers := &drivers{ready: map[string]Driver{}, unavailable: map[string]error{}, wanted: c.Wanted}
	drivers.accounts = &accounts{of: c.Accounts, secrets: c.Secrets, opened: map[accountKey]openedAccount{}}
	maps.Copy(drivers.ready, c.Drivers)
	maps.Copy(drivers.unavailable, c.Unavailable)
	environments := &Environments{db: c.DB, drivers: drivers, maxima: c.Maxima, q: q}
	machines := &Machines{db: c.DB, drivers: drivers, goneAfter: cmp.Or(c.MachineGone, 24*time.Hour), q: q}
	saveAfter := cmp.Or(c.SaveAfter, defaultSaveAfter)
	sandboxes := &Sandboxes{db: c.DB, machines: machines, logger: c.Logger, q: q, touchEach: min(maxTouchEach, max(saveAfter/4, time.Millisecond))}
	refused, locks := new(refusals), newLocks(c.DB.Pool())
	git := &gitAccess{public: c.Door, token: c.GitToken, logger: c.Logger, written: map[string]time.Time{}}
	trees := &trees{
		db: c.DB, threads: c.Threads, environments: environments, sandboxes: sandboxes, drivers: drivers, artifacts: c.Artifacts, locks: locks,
		logger: c.Logger, q: q,
	}
	r := &Resolver{
		Environments: environments, Machines: machines, Sandboxes: sandboxes,
		Reaper: &Reaper{
			db: c.DB, threads: c.Threads, machines: machines, sandboxes: sandboxes, drivers: drivers,
			installation: c.Installation, logger: c.Logger, locks: locks, trees: trees, quiet: saveAfter, turns: newSlots(tendedAtOnce), asking: newSlots(askedAtOnce),
		},
		db: c.DB, log: c.Log, threads: c.Threads, drivers: drivers, maxima: c.Maxima, door: c.Door, logger: c.Logger, refusals: refused,
		git:   git,
		awake: &awake{logger: c.Logger, slots: newSlots(askedAtOnce), held: map[string]*held{}},
		files: &attached{artifacts: c.Artifacts, sandboxes: sandboxes, logger: c.Logger, slots: newSlots(writtenAtOnce), patience: placeTime, writing: map[string]bool{}},
		builds: &builds{
			db: c.DB, log: c.Log, threads: c.Threads, environments: environments, sandboxes: sandboxes, drivers: drivers, maxima: c.Maxima,
			preparation: preparation{repositories: repositories{roots: c.RepoRoots}, stepTime: c.Maxima.time(defaultStepTime), refusals: refused, git: git},
			trees:       trees, secrets: c.Secrets, installation: c.Installation, door: c.Door, observe: c.Observe, logger: c.Logger,
			running: newRunningBuilds(), slots: newSlots(buildsAtOnce), locks: locks,
		},
	}
	for _, driver := range c.Drivers {
		r.hear(driver)
	}
	return r
}

// hear reports the refused connections of a driver's boxes.
func (r *Resolver) hear(driver Driver) {
	if gated, ok := driver.(Gated); ok {
		gated.OnRefusal(r.refusals.pass)
	}
}

// DriverStarted reports that an unavailable driver is ready or, with an error, why it still is not. For a ready driver,
// it finishes the work that a crash left.
func (r *Resolver) DriverStarted(ctx context.Context, name string, driver Driver, err error) {
	r.drivers.add(name, driver, err)
	if err != nil {
		return
	}
	r.hear(driver)
	r.Reaper.sweepOperators(ctx, name, driver, sweepTime)
	if err := r.Machines.TouchMachines(ctx); err != nil {
		r.Reaper.logger.Warn("cannot record that this server's machine is back", "error", fault.From(err).Detail())
	}
}

// Use calls do with the thread's sandbox, which it resolves first, and to which it writes the files of the thread's messages.
// environmentID may name the environment to build the
// sandbox from; if the existing one was built from another, the error is a [fault.Precondition]. If do fails with a
// [fault.NotFound], which promises that nothing was started, and the box is gone, the sandbox is replaced and do called
// again, once. If only another machine reaches the sandbox, the error is an [*OtherMachineError].
func (r *Resolver) Use(ctx context.Context, scope db.Scope, threadID, environmentID string, do func(Handle) error) error {
	for retried := false; ; retried = true {
		box, err := r.resolve(ctx, scope, threadID, environmentID)
		if err != nil {
			return err
		}
		place, err := r.handle(ctx, scope, box)
		if err != nil {
			return err
		}
		runs, ended := r.Sandboxes.keepUsed(ctx, scope, box.ID, place.sleeps() == nil)
		running, err := r.awaken(ctx, scope, threadID, place)
		if running {
			runs()
		}
		if err == nil {
			err = r.attend(ctx, place)
		}
		if err == nil {
			err = r.start(ctx, place)
		}
		if err == nil {
			place.missing, err = r.files.place(ctx, placing{scope, threadID, place})
		}
		if err == nil {
			err = do(place)
		}
		ended()
		if retried || fault.CodeOf(err) != fault.NotFound {
			return err
		}
		if alive, err := r.Reaper.Confirm(ctx, scope, box.ID); err != nil || alive != Gone {
			return errors.Join(err, fault.New(fault.Unavailable, "the sandbox does not answer", "run the command again"))
		}
	}
}

// awaken wakes a box that is asleep, and tells the thread. If its provider cannot say whether it is asleep, running is false, and the
// next use of the box tells what is wrong.
func (r *Resolver) awaken(ctx context.Context, scope db.Scope, threadID string, p Handle) (running bool, err error) {
	driver := p.sleeps()
	if driver == nil {
		return true, nil
	}
	if asleep, err := driver.Asleep(ctx, p.Ref); err != nil || !asleep {
		return err == nil, ctx.Err()
	}
	r.Sandboxes.observe(ctx, scope, p.ID, observation{known: knownStopped})
	began := time.Now()
	if err := p.wake(ctx); err != nil {
		return false, err
	}
	woken := entry.SandboxWoken{SandboxID: p.ID, TookMS: time.Since(began).Milliseconds()}
	th, err := r.threads.Get(ctx, scope, threadID)
	if err == nil {
		// Commands that begin at once find the box asleep together, and tell it once.
		_, err = r.log.Append(ctx, th.Stream(), entry.NewDraft(fmt.Sprintf("woken.%s.%d", p.ID, began.Unix()/60), "", woken))
	}
	if err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "a thread is not told that its sandbox was asleep", "sandbox", p.ID, "error", fault.From(err).Detail())
	}
	return true, ctx.Err()
}

// Handle returns a sandbox by its id, to continue earlier work in it. A dead sandbox is a [fault.NotFound], and
// one that only another machine reaches an [*OtherMachineError].
func (r *Resolver) Handle(ctx context.Context, scope db.Scope, id string) (Handle, error) {
	var box Sandbox
	err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if box, err = r.Sandboxes.getTx(ctx, tx, id); err != nil {
			return err
		}
		box, err = r.Sandboxes.reachTx(ctx, tx, box)
		return err
	})
	if err == nil && box.Status != StatusLive {
		err = fault.New(fault.NotFound, "the sandbox "+id+" no longer exists", "run the command again: the thread gets a new sandbox")
	}
	if err != nil {
		return Handle{}, err
	}
	return r.handle(ctx, scope, box)
}

// handle returns the handle of a live sandbox that this server reaches. For one of another machine, it has only what
// [Elsewhere] promises.
func (r *Resolver) handle(ctx context.Context, scope db.Scope, box Sandbox) (Handle, error) {
	env, err := r.Environment(ctx, scope, box.Environment)
	if err != nil {
		return Handle{}, err
	}
	var driver Driver
	if r.elsewhere != nil && r.Sandboxes.elsewhere(box) {
		driver = r.elsewhere.Driver(scope, box) // its server applies the policy
	} else {
		driver, err = r.gated(ctx, box, env)
	}
	if err != nil {
		return Handle{}, err
	}
	door, err := doorOf(ctx, driver, box.Ref, r.door)
	return Handle{Sandbox: box, driver: driver, recipe: env.Recipe.with(box.Defaults), maxima: r.maxima, door: door}, err
}

// resolve returns the thread's sandbox, ready for commands.
func (r *Resolver) resolve(ctx context.Context, scope db.Scope, threadID, environmentID string) (Sandbox, error) {
	for {
		var box Sandbox
		err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			box, err = r.currentTx(ctx, tx, threadID, environmentID)
			return err
		})
		if err == nil && box.Status == StatusPending {
			box, err = r.builds.build(ctx, scope, threadID, box.ID)
			if err == nil && r.Sandboxes.elsewhere(box) {
				err = errChanged // a server of another machine built it, so resolving it again returns that error
			}
		}
		if !errors.Is(err, errChanged) {
			return box, err
		}
	}
}

// currentTx returns the thread's sandbox: live, or pending if its box must still be built. Building takes too long for
// a transaction.
func (r *Resolver) currentTx(ctx context.Context, tx pgx.Tx, threadID, environmentID string) (Sandbox, error) {
	th, err := r.threads.GetTx(ctx, tx, threadID)
	if err != nil {
		return Sandbox{}, err
	}
	if th.Sandbox == "" {
		return r.firstTx(ctx, tx, threadID, environmentID)
	}
	box, err := r.Sandboxes.getTx(ctx, tx, th.Sandbox)
	if err != nil {
		return Sandbox{}, changedIfGone(err)
	}
	if environmentID != "" && environmentID != box.Environment {
		return Sandbox{}, fault.Newf(fault.Precondition, "leave the environment out, or use another thread",
			"this thread is on sandbox %s, which was built from another environment", box.ID)
	}
	if box, err = r.Sandboxes.reachTx(ctx, tx, box); err != nil {
		return Sandbox{}, err
	}
	if box.Status == StatusDead {
		return r.nextTx(ctx, tx, threadID, box)
	}
	return box, nil
}

// firstTx returns a pending sandbox for a thread that has none. It locks the thread, so that concurrent commands do not
// create two.
func (r *Resolver) firstTx(ctx context.Context, tx pgx.Tx, threadID, environmentID string) (Sandbox, error) {
	th, err := r.threads.LockTx(ctx, tx, threadID)
	if err != nil {
		return Sandbox{}, err
	}
	if th.Sandbox != "" {
		return Sandbox{}, errChanged
	}
	box, err := r.insertTx(ctx, tx, threadID, environmentID, Sandbox{Ephemeral: th.Agent != ""})
	if err != nil {
		return Sandbox{}, err
	}
	return box, r.threads.PutOnSandboxTx(ctx, tx, threadID, box.ID)
}

// nextTx returns the replacement of a dead sandbox. It is pending, or it is ready and this thread moves to it. When
// the replacement becomes ready, all threads on the dead sandbox move together, because threads that share files must
// keep sharing them. Until then they stay on the dead one, so nothing is lost if the build fails.
func (r *Resolver) nextTx(ctx context.Context, tx pgx.Tx, threadID string, dead Sandbox) (Sandbox, error) {
	if _, err := r.Sandboxes.lockTx(ctx, tx, dead.ID); err != nil {
		return Sandbox{}, changedIfGone(err)
	}
	th, err := r.threads.GetTx(ctx, tx, threadID)
	if err != nil {
		return Sandbox{}, err
	}
	if th.Sandbox != dead.ID {
		return Sandbox{}, errChanged
	}
	next, err := r.Sandboxes.replacementTx(ctx, tx, dead.ID, "")
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return r.insertTx(ctx, tx, threadID, dead.Environment, Sandbox{Ephemeral: dead.Ephemeral, Replaces: dead.ID})
	case err != nil || next.Status == StatusPending:
		return next, err
	}
	// The thread came to the dead sandbox after the others had left it.
	said := entry.SandboxResumed{SandboxID: next.ID, PreviousSandboxID: dead.ID}
	if _, err := r.builds.moveTx(ctx, tx, next, said); err != nil {
		return Sandbox{}, err
	}
	return next, nil
}

// Renew gives a thread a new sandbox that begins with the files of its old one, ready for commands. Other threads
// stay on the old one. It does nothing if the thread is no longer on that sandbox. If only another machine reaches
// the old one, and that machine is up, the error is an [*OtherMachineError].
func (r *Resolver) Renew(ctx context.Context, scope db.Scope, threadID, from string) error {
	for away := false; ; {
		var next Sandbox
		err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			next, err = r.renewTx(ctx, tx, threadID, from, away)
			return err
		})
		if other, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere && !away {
			if away, err = r.MachineAway(ctx, other.Machine); away && err == nil {
				continue // with the saved files
			}
			return cmp.Or[error](err, other)
		}
		if err == nil && next.ID != "" {
			_, err = r.builds.build(ctx, scope, threadID, next.ID)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// renewTx returns the pending sandbox to which a thread will move; none if the thread has no sandbox to leave. With
// away, the thread also leaves a sandbox that this server does not reach.
func (r *Resolver) renewTx(ctx context.Context, tx pgx.Tx, threadID, from string, away bool) (Sandbox, error) {
	old, err := r.Sandboxes.lockTx(ctx, tx, from)
	if fault.CodeOf(err) == fault.NotFound {
		return Sandbox{}, nil
	} else if err != nil {
		return Sandbox{}, err
	}
	th, err := r.threads.GetTx(ctx, tx, threadID)
	if err != nil || th.Sandbox != from {
		return Sandbox{}, err
	}
	old, err = r.Sandboxes.reachTx(ctx, tx, old)
	if _, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere && away {
		err = nil
	}
	if err == nil && old.Status != StatusLive {
		// The next use of a sandbox that this thread does not share builds or replaces it. A dead one that it shares is
		// left, because that use would move the other threads, too.
		var sharing []string
		if sharing, err = r.threads.OnSandboxTx(ctx, tx, from); err == nil && (old.Status == StatusPending || len(sharing) < 2) {
			return Sandbox{}, nil
		}
	}
	if err != nil {
		return Sandbox{}, err
	}
	next, err := r.Sandboxes.replacementTx(ctx, tx, from, threadID)
	if fault.CodeOf(err) == fault.NotFound {
		return r.insertTx(ctx, tx, threadID, old.Environment, Sandbox{Ephemeral: th.Agent != "", Replaces: from, ReplacesFor: threadID})
	}
	return next, err
}

// insertTx inserts a pending sandbox, unless this server lacks the environment's driver: such a record would have to be
// deleted before a corrected recipe could help.
func (r *Resolver) insertTx(ctx context.Context, tx pgx.Tx, threadID, environmentID string, of Sandbox) (Sandbox, error) {
	env, err := r.Environments.chooseTx(ctx, tx, threadID, environmentID)
	if err != nil {
		return Sandbox{}, err
	}
	if of.OwnAccount, err = r.drivers.chooseTx(ctx, tx, r.Sandboxes.q, env.Recipe.driver()); err != nil {
		return Sandbox{}, err
	}
	return r.Sandboxes.insertTx(ctx, tx, env, of)
}

// changedIfGone returns errChanged if a thread's sandbox no longer exists.
func changedIfGone(err error) error {
	if fault.CodeOf(err) == fault.NotFound {
		return errChanged
	}
	return err
}

// gated returns the driver of a sandbox, after applying the policy of its environment.
func (r *Resolver) gated(ctx context.Context, box Sandbox, env Environment) (Driver, error) {
	driver, err := r.drivers.of(ctx, box)
	if gated, ok := driver.(Gated); ok && err == nil {
		// If the box is gone, the caller finds out by using it.
		if err = gated.SetEgress(ctx, box.Ref, r.maxima.egress(env.Recipe.egress())); fault.CodeOf(err) == fault.NotFound {
			err = nil
		}
	}
	return driver, err
}

// WithoutTerminals reports whether commands in the sandboxes of a driver cannot have a terminal. It is false if this
// server does not know.
func (r *Resolver) WithoutTerminals(driver string) bool { return r.drivers.withoutTerminals(driver) }

// start runs the start script of a box, unless it has run since the box started.
func (r *Resolver) start(ctx context.Context, p Handle) error {
	if p.recipe.Start == "" {
		return nil
	}
	var received secret.Received
	if len(p.recipe.Secrets) > 0 && !p.recipe.unreviewed {
		var err error
		if received, err = r.builds.secrets.Receive(ctx, p.House, p.recipe.Secrets); err != nil {
			return err
		}
	}
	env := maps.Clone(p.recipe.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, received.Env)
	var out tail
	redacted := received.Redactor.Stream(func(b []byte) { _, _ = out.Write(b) }) // never fails
	result, err := p.Exec(ctx, Command{Argv: startArgv(p.recipe), Dir: p.recipe.startDirectory(), Stdout: redacted, Merged: true, Env: env, Secrets: received.Files, Timeout: r.builds.preparation.stepTime})
	redacted.Flush()
	switch {
	case err != nil:
	case result.TimedOut:
		err = overtime("the start script", r.builds.preparation.stepTime, out.String())
	case result.ExitCode != 0:
		err = fault.Newf(fault.Precondition, "correct the environment's start script, then run the command again",
			"the start script failed with exit code %d\n%s", result.ExitCode, out.String())
	}
	return err
}
