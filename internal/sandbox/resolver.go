package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Config says what a [Resolver] works with.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	// Drivers are the providers by name; Unavailable are those this server cannot use, and why.
	Drivers     map[string]Driver
	Unavailable map[string]error
	// RepoRoots are directories of this machine whose git repositories recipes may name; the operator
	// chooses them. Defaults to none.
	RepoRoots []string
	// Logger hears of what goes wrong outside any request.
	Logger *slog.Logger
}

// Resolver keeps environments and sandboxes, and finds the right machine for a thread, so that nobody
// picks one by hand. It is safe for concurrent use, also by several servers on one database.
type Resolver struct {
	db        *db.DB
	log       *stream.Log
	threads   *thread.Threads
	drivers   map[string]Driver
	broken    map[string]error
	repoRoots []string
	logger    *slog.Logger
	q         *query.Queries
	yard      *yard
}

// NewResolver makes a Resolver.
func NewResolver(c Config) *Resolver {
	return &Resolver{
		db: c.DB, log: c.Log, threads: c.Threads, drivers: c.Drivers, broken: c.Unavailable, repoRoots: c.RepoRoots,
		logger: c.Logger, q: query.New(), yard: newYard(),
	}
}

// Sandbox is the handle of a machine.
type Sandbox struct {
	ID, House, Environment string
	// Provider is the driver that made it, Ref the machine's name there.
	Provider, Ref string
	Status        Status
	// Ephemeral machines are deleted once no running thread is on them.
	Ephemeral              bool
	CreatedAt, DestroyedAt time.Time
}

// Status is what we know of a machine.
type Status string

// The statuses: being made, usable, and gone for good.
const (
	StatusPending Status = "pending"
	StatusLive    Status = "live"
	StatusDead    Status = "dead"
)

// driver is the provider of this name.
func (r *Resolver) driver(name string) (Driver, error) {
	if d, ok := r.drivers[name]; ok {
		return d, nil
	}
	if err, ok := r.broken[name]; ok {
		return nil, err
	}
	known := strings.Join(slices.Sorted(maps.Keys(r.drivers)), ", ")
	return nil, fault.Newf(fault.Precondition, "use one of: "+known, "there is no sandbox driver %q on this server", name)
}

// resolve finds the thread's sandbox: live, it is used; dead, another one takes its place under every
// thread that was on it; none, one is made from the environment asked for, else the thread's, else the
// house's (seed 000, "run_command"). The sandbox is ready for commands when resolve returns.
func (r *Resolver) resolve(ctx context.Context, scope db.Scope, threadID, environmentID string) (Sandbox, error) {
	for {
		var box Sandbox
		err := r.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			box, err = r.row(ctx, tx, scope, threadID, environmentID)
			return err
		})
		if err == nil && box.Status == StatusPending {
			box, err = r.materialize(ctx, scope, threadID, box.ID)
		}
		if !errors.Is(err, errOvertaken) {
			return box, err
		}
	}
}

// errOvertaken says that someone else changed what was being looked at: look again.
var errOvertaken = errors.New("the thread's sandbox was changed meanwhile")

// row is the row of the thread's sandbox: live, or pending when its machine is still to be made.
func (r *Resolver) row(ctx context.Context, tx pgx.Tx, scope db.Scope, threadID, environmentID string) (Sandbox, error) {
	th, err := r.threads.GetTx(ctx, tx, threadID)
	if err != nil {
		return Sandbox{}, err
	}
	if th.Sandbox == "" {
		if th, err = r.threads.LockTx(ctx, tx, threadID); err != nil {
			return Sandbox{}, err
		}
		if th.Sandbox != "" {
			return Sandbox{}, errOvertaken
		}
		return r.claim(ctx, tx, scope, th, environmentID)
	}
	box, err := sandboxFrom(r.q.GetSandbox(ctx, tx, th.Sandbox))
	if fault.CodeOf(err) == fault.NotFound {
		return Sandbox{}, errOvertaken
	} else if err != nil {
		return Sandbox{}, err
	}
	if environmentID != "" && environmentID != box.Environment {
		return Sandbox{}, fault.Newf(fault.Precondition, "leave the environment out, or use another thread",
			"this thread is on sandbox %s, which was built from another environment", box.ID)
	}
	if box.Status != StatusDead {
		return box, nil
	}
	// The sandbox is locked before its threads, and no thread before it: two threads that find it dead at
	// the same time must not wait for each other.
	if _, err := r.q.LockSandbox(ctx, tx, box.ID); err != nil {
		return Sandbox{}, err
	}
	if th, err = r.threads.GetTx(ctx, tx, threadID); err != nil {
		return Sandbox{}, err
	}
	if th.Sandbox != box.ID {
		return Sandbox{}, errOvertaken
	}
	return r.replace(ctx, tx, scope, box)
}

// claim makes the row of a thread's first sandbox.
func (r *Resolver) claim(ctx context.Context, tx pgx.Tx, scope db.Scope, th thread.Thread, environmentID string) (Sandbox, error) {
	if environmentID == "" {
		var err error
		if environmentID, err = r.q.DefaultEnvironment(ctx, tx, th.ID); err != nil {
			return Sandbox{}, err
		}
	}
	if environmentID == "" {
		return Sandbox{}, fault.New(fault.Precondition, "there is no environment to build a sandbox from: the thread names none and the house has no default",
			"name one with the command, set the thread's, or set the house's default environment")
	}
	box, err := r.insert(ctx, tx, scope, environmentID)
	if err != nil {
		return Sandbox{}, err
	}
	return box, r.q.SetThreadSandbox(ctx, tx, &box.ID, th.ID)
}

// replace makes the row of the sandbox that takes a dead one's place, and moves every thread of the dead
// one to it, telling each: moving only the one that noticed would fork the others off.
func (r *Resolver) replace(ctx context.Context, tx pgx.Tx, scope db.Scope, dead Sandbox) (Sandbox, error) {
	box, err := r.insert(ctx, tx, scope, dead.Environment)
	if err != nil {
		return Sandbox{}, err
	}
	moved, err := r.q.RepointThreads(ctx, tx, box.ID, scope.House, dead.ID)
	if err != nil {
		return Sandbox{}, err
	}
	// Streams are locked in one order everywhere, so that two of these never wait for each other.
	slices.SortFunc(moved, func(a, b query.RepointThreadsRow) int { return strings.Compare(a.StreamID, b.StreamID) })
	for _, th := range moved {
		said := entry.NewDraft("", "", entry.SandboxResumed{SandboxID: box.ID, PreviousSandboxID: dead.ID})
		if _, err := r.log.AppendTx(ctx, tx, stream.Ref{House: scope.House, Name: th.StreamID}, said); err != nil {
			return Sandbox{}, err
		}
	}
	return box, nil
}

func (r *Resolver) insert(ctx context.Context, tx pgx.Tx, scope db.Scope, environmentID string) (Sandbox, error) {
	env, err := environment(r.q.GetEnvironment(ctx, tx, environmentID))
	if err != nil {
		return Sandbox{}, err
	}
	if _, err := r.driver(env.Recipe.driver()); err != nil {
		return Sandbox{}, err // no row that only another recipe could mend
	}
	return sandboxFrom(r.q.InsertSandbox(ctx, tx, query.InsertSandboxParams{
		HouseID: scope.House, EnvironmentID: environmentID, Provider: env.Recipe.driver(),
	}))
}

// Exec runs a command on the thread's sandbox, resolving it first. command is asked for what to run once
// the sandbox and its recipe are known; a zero Timeout becomes the recipe's. A machine that turns out to
// be gone is replaced, once.
func (r *Resolver) Exec(ctx context.Context, scope db.Scope, threadID, environmentID string, command func(Sandbox) Command) (Sandbox, Result, error) {
	for retried := false; ; retried = true {
		box, err := r.resolve(ctx, scope, threadID, environmentID)
		if err != nil {
			return Sandbox{}, Result{}, err
		}
		env, err := r.Environment(ctx, scope, box.Environment)
		if err != nil {
			return box, Result{}, err
		}
		driver, err := r.driver(box.Provider)
		if err != nil {
			return box, Result{}, err
		}
		cmd := command(box)
		if cmd.Timeout == 0 {
			cmd.Timeout = env.Recipe.commandTimeout()
		}
		result, err := driver.Exec(ctx, box.Ref, cmd)
		if retried || fault.CodeOf(err) != fault.NotFound {
			return box, result, err
		}
		if alive, err := r.ConfirmLiveness(ctx, scope, box.ID); err != nil || alive != Gone {
			return box, result, errors.Join(err, fault.New(fault.Unavailable, "the sandbox did not answer", "run the command again"))
		}
	}
}

// ConfirmLiveness asks the provider about a sandbox and writes down a death. Gone is pull-confirmed;
// Unknown changes nothing (seed 001, box lifecycle).
func (r *Resolver) ConfirmLiveness(ctx context.Context, scope db.Scope, id string) (Liveness, error) {
	box, err := r.Sandbox(ctx, scope, id)
	if err != nil {
		return Unknown, err
	}
	switch box.Status {
	case StatusDead:
		return Gone, nil
	case StatusPending:
		return Unknown, nil
	}
	driver, err := r.driver(box.Provider)
	if err != nil {
		return Unknown, err
	}
	alive, err := driver.Probe(ctx, box.Ref)
	if err == nil && alive == Gone {
		err = r.db.In(ctx, scope, func(tx pgx.Tx) error { return r.q.MarkSandboxDead(ctx, tx, id) })
	}
	return alive, err
}

// Destroy deletes a sandbox's machine with its files, and returns the row, now dead. Destroying a dead
// one succeeds. The row goes first: a crash in between leaves a machine that [Resolver.Sweep] finds.
func (r *Resolver) Destroy(ctx context.Context, scope db.Scope, id string) (Sandbox, error) {
	return r.destroy(ctx, scope, id, func(context.Context, pgx.Tx) (bool, error) { return true, nil })
}

// Reap destroys a sandbox that no thread points at any more; with one that is in use, or gone, it does
// nothing.
func (r *Resolver) Reap(ctx context.Context, scope db.Scope, id string) error {
	_, err := r.destroy(ctx, scope, id, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		inUse, err := r.q.ThreadsOnSandbox(ctx, tx, id)
		return inUse == 0, err
	})
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// destroy is [Resolver.Destroy] for a sandbox that may go. may is asked while the row is locked, so that
// no thread comes to it meanwhile.
func (r *Resolver) destroy(ctx context.Context, scope db.Scope, id string, may func(context.Context, pgx.Tx) (bool, error)) (box Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		if box, err = sandboxFrom(r.q.LockSandbox(ctx, tx, id)); err != nil {
			return err
		}
		if ok, err := may(ctx, tx); err != nil || !ok {
			return err
		}
		if err := r.q.MarkSandboxDead(ctx, tx, id); err != nil {
			return err
		}
		box, err = sandboxFrom(r.q.GetSandbox(ctx, tx, id))
		return err
	})
	// One that is being made has no machine we know of: whoever makes it finds the row dead.
	if err != nil || box.Status != StatusDead || box.Ref == "" {
		return box, err
	}
	driver, err := r.driver(box.Provider)
	if err != nil {
		return box, err
	}
	return box, driver.Destroy(ctx, box.Ref)
}

// Sweep destroys the machines that no row speaks for: what a crash left between a row and its machine.
// It is for the start of a server.
func (r *Resolver) Sweep(ctx context.Context) {
	for name, driver := range r.drivers {
		boxes, err := driver.List(ctx, Labels{})
		if err != nil {
			r.logger.Warn("cannot list the sandboxes of a driver", "driver", name, "error", err)
			continue
		}
		for _, b := range boxes {
			row, err := r.Sandbox(ctx, db.Scope{House: b.Labels.House}, b.ID)
			orphan := fault.CodeOf(err) == fault.NotFound || err == nil && row.Status == StatusDead
			if !orphan {
				continue
			}
			if err := driver.Destroy(ctx, b.Ref); err != nil {
				r.logger.Warn("cannot destroy an orphaned sandbox", "driver", name, "sandbox", b.ID, "error", err)
			}
		}
	}
}

// Sandbox returns one sandbox, or a [fault.NotFound].
func (r *Resolver) Sandbox(ctx context.Context, scope db.Scope, id string) (box Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		box, err = sandboxFrom(r.q.GetSandbox(ctx, tx, id))
		return err
	})
	return box, err
}

// Sandboxes returns up to limit sandboxes of the scope's house before a cursor, newest first.
func (r *Resolver) Sandboxes(ctx context.Context, scope db.Scope, before db.Cursor, limit int) (list []Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := r.q.ListSandboxes(ctx, tx, query.ListSandboxesParams{
			HouseID: scope.House, BeforeTime: before.Time, BeforeID: before.ID, MaxRows: int32(limit),
		})
		for _, row := range rows {
			box, _ := sandboxFrom(row, nil)
			list = append(list, box)
		}
		return err
	})
	return list, err
}

func sandboxFrom(r query.Sandbox, err error) (Sandbox, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Sandbox{}, fault.New(fault.NotFound, "there is no such sandbox", "see the thread's sandbox with: arbe thread show")
	}
	return Sandbox{
		ID: r.ID, House: r.HouseID, Environment: r.EnvironmentID, Provider: r.Provider, Ref: db.Zero(r.ProviderRef),
		Status: Status(r.Status), Ephemeral: r.Ephemeral, CreatedAt: r.CreatedAt, DestroyedAt: db.Zero(r.DestroyedAt),
	}, err
}
