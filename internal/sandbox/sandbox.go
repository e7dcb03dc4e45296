package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Sandbox is the record of a box.
type Sandbox struct {
	ID, House, Environment string
	// Provider is the driver that created it, and Ref the box's name there.
	Provider, Ref string
	// OwnAccount means that the box is in the house's own account at the provider, instead of the operator's.
	OwnAccount bool
	// Machine is the machine to which it is bound; empty if every server reaches it, or while it is being built,
	// because any server may build it.
	Machine string
	Status  Status
	// Ephemeral sandboxes are deleted when no running thread is on them.
	Ephemeral bool
	// Replaces is the sandbox whose working tree it begins with; empty for none. ReplacesFor is the single thread
	// that moves from that sandbox; empty for all of its threads. They move when this one is ready.
	Replaces, ReplacesFor string
	// Defaults are what its repository says about its use.
	Defaults               Defaults
	CreatedAt, DestroyedAt time.Time
}

// Status is the known state of a box.
type Status string

// The statuses: not built yet, usable, and gone for good.
const (
	StatusPending Status = "pending"
	StatusLive    Status = "live"
	StatusDead    Status = "dead"
)

// Sandboxes stores the records of sandboxes, including dead ones. A record may change after it was read, unless the
// caller's transaction has locked it. It is safe for concurrent use.
type Sandboxes struct {
	db       *db.DB
	machines *Machines
	logger   *slog.Logger
	q        *query.Queries
	// touched holds the last [use] of each sandbox that this server recorded, by its id. touchEach is the time between
	// two such records.
	touched   sync.Map
	touchEach time.Duration
}

// Sandbox returns one sandbox, or a [fault.NotFound].
func (s *Sandboxes) Sandbox(ctx context.Context, scope db.Scope, id string) (box Sandbox, err error) {
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		box, err = s.getTx(ctx, tx, id)
		return err
	})
	return box, err
}

// Filter selects sandboxes. The zero value selects all.
type Filter struct {
	// Prefix is the beginning of their ids, and Driver the driver that created them.
	Prefix, Driver string
	// Existing leaves out dead ones.
	Existing bool
}

// ListSandboxes returns up to limit sandboxes of the scope's house before a cursor, newest first.
func (s *Sandboxes) ListSandboxes(ctx context.Context, scope db.Scope, f Filter, before db.Cursor, limit int) (list []Sandbox, err error) {
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		var rows []query.Sandbox
		if f.Prefix == "" {
			rows, err = s.q.ListSandboxes(ctx, tx, query.ListSandboxesParams{
				HouseID: scope.House, BeforeTime: before.Time, BeforeID: before.ID, Provider: f.Driver, Existing: f.Existing, MaxRows: int32(limit),
			})
		} else {
			rows, err = s.q.MatchSandboxes(ctx, tx, query.MatchSandboxesParams{
				HouseID: scope.House, Prefix: f.Prefix, BeforeTime: before.Time, BeforeID: before.ID, Provider: f.Driver, Existing: f.Existing, MaxRows: int32(limit),
			})
		}
		for _, row := range rows {
			box, _ := sandboxFrom(row, nil)
			list = append(list, box)
		}
		return err
	})
	return list, err
}

// Use describes the use of a sandbox.
type Use struct {
	EnvironmentName string
	// UsedAt is when something last ran in it, to within half a minute. SavedAt is when its working tree was saved.
	// Zero is never.
	UsedAt, SavedAt time.Time
	// ThreadCount is the number of threads on it. Threads has at most five of them, the most recently active first.
	// Direct messages are counted but not listed.
	ThreadCount int
	Threads     []UsingThread
	// DiskBytes is the space that it uses on its machine's disk, as of the last few minutes; 0 if that is not
	// known.
	DiskBytes int64
	// Running is how long it has run, as of the last few minutes. HourlyMicros is its price as in [Meter].
	Running      Running
	HourlyMicros int64
}

// Disk is the disk space of machines that a house uses, in bytes, as of the last few minutes.
type Disk struct {
	Sandboxes, Cached int64
	// Most is its limit on one machine's disk; 0 for no limit.
	Most int64
}

// Disk returns the disk space of the scope's house.
func (s *Sandboxes) Disk(ctx context.Context, scope db.Scope) (disk Disk, err error) {
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		row, err := s.q.HouseDisk(ctx, tx, scope.House)
		disk = Disk{Sandboxes: row.Sandboxes, Cached: row.Cached, Most: row.Most}
		return err
	})
	return disk, err
}

// UsingThread is a thread on a sandbox. Its name may be empty.
type UsingThread struct{ ID, Name string }

// Uses returns the uses of sandboxes of the scope's house, by their ids.
func (s *Sandboxes) Uses(ctx context.Context, scope db.Scope, ids ...string) (uses map[string]Use, err error) {
	uses = make(map[string]Use, len(ids))
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := s.q.SandboxUses(ctx, tx, scope.House, ids)
		for _, row := range rows {
			use := Use{EnvironmentName: row.EnvironmentName, UsedAt: db.Zero(row.UsedAt), SavedAt: db.Zero(row.SavedAt), ThreadCount: int(row.ThreadCount), DiskBytes: row.DiskBytes,
				Running: runningOf(row.RunningMs, row.UnpricedMs, row.CostMicros), HourlyMicros: row.HourlyMicros}
			for i, id := range row.ThreadIds {
				use.Threads = append(use.Threads, UsingThread{id, row.ThreadNames[i]})
			}
			uses[row.ID] = use
		}
		return err
	})
	return uses, err
}

// getTx is [Sandboxes.Sandbox] in a transaction.
func (s *Sandboxes) getTx(ctx context.Context, tx pgx.Tx, id string) (Sandbox, error) {
	return sandboxFrom(s.q.GetSandbox(ctx, tx, id))
}

// lockTx is getTx, and locks the record until the transaction ends.
//
// A sandbox must be locked before its threads. Otherwise two threads that find their sandbox dead at the same time
// could deadlock.
func (s *Sandboxes) lockTx(ctx context.Context, tx pgx.Tx, id string) (Sandbox, error) {
	return sandboxFrom(s.q.LockSandbox(ctx, tx, id))
}

// insertTx inserts a pending sandbox to be built from an environment. of says whether it is in the house's own
// account, whether it is ephemeral, and which sandbox it replaces.
func (s *Sandboxes) insertTx(ctx context.Context, tx pgx.Tx, env Environment, of Sandbox) (Sandbox, error) {
	return sandboxFrom(s.q.InsertSandbox(ctx, tx, query.InsertSandboxParams{
		HouseID: env.House, EnvironmentID: env.ID, Provider: env.Recipe.driver(), OwnAccount: of.OwnAccount, Ephemeral: of.Ephemeral,
		Replaces: db.Null(of.Replaces), ReplacesFor: db.Null(of.ReplacesFor),
	}))
}

// replacementTx returns the replacement of a sandbox for a thread, or for all threads if threadID is empty. The
// replacement is ready or being built. Without one, the error is a [fault.NotFound].
func (s *Sandboxes) replacementTx(ctx context.Context, tx pgx.Tx, id, threadID string) (Sandbox, error) {
	return sandboxFrom(s.q.ReplacementOf(ctx, tx, id, threadID))
}

// markLiveTx records that this server built the box of a pending sandbox, with the driver's ref.
func (s *Sandboxes) markLiveTx(ctx context.Context, tx pgx.Tx, box Sandbox, ref string) (Sandbox, error) {
	box.Ref, box.Status, box.Machine = ref, StatusLive, s.machines.drivers.machine(box.Provider)
	return box, s.q.MarkSandboxLive(ctx, tx, ref, db.Null(box.Machine), box.ID)
}

// recordDefaultsTx records what the repository of a sandbox says about its use.
func (s *Sandboxes) recordDefaultsTx(ctx context.Context, tx pgx.Tx, id string, d Defaults) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.q.RecordSandboxDefaults(ctx, tx, text, id)
}

// markDeadTx records that the box is gone for good, or is being deleted if how is knownRemoved. It does nothing if the sandbox is dead.
// It locks what observeTx locks.
func (s *Sandboxes) markDeadTx(ctx context.Context, tx pgx.Tx, id string, how known) error {
	changed, err := s.q.MarkSandboxDead(ctx, tx, id)
	if err != nil || changed == 0 {
		return err
	}
	return s.observeTx(ctx, tx, id, observation{known: how})
}

// deleteTx deletes a sandbox that was never built. Its thread then has none, so the next command may name another
// environment.
func (s *Sandboxes) deleteTx(ctx context.Context, tx pgx.Tx, id string) error {
	return s.q.DeleteSandbox(ctx, tx, id)
}

// elsewhere reports whether only another machine reaches a sandbox.
func (s *Sandboxes) elsewhere(box Sandbox) bool {
	return !s.machines.reaches(box.Provider, box.Machine)
}

// reachTx returns a sandbox if it is live and this server reaches it, or an [*OtherMachineError]. If the machine is
// gone, it marks the sandbox dead, because otherwise its threads would wait forever.
func (s *Sandboxes) reachTx(ctx context.Context, tx pgx.Tx, box Sandbox) (Sandbox, error) {
	if box.Status != StatusLive || !s.elsewhere(box) {
		return box, nil
	}
	gone, err := s.machines.goneTx(ctx, tx, box.Machine)
	if err != nil {
		return box, err
	}
	if !gone {
		return box, &OtherMachineError{box.Machine}
	}
	s.logger.Warn("a sandbox counts as dead, because no server of its machine has reported for a long time", "sandbox", box.ID, "machine", box.Machine)
	box.Status = StatusDead
	return box, s.markDeadTx(ctx, tx, box.ID, knownStopped)
}

// sandboxFrom returns the sandbox of a row that was queried.
func sandboxFrom(r query.Sandbox, err error) (Sandbox, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Sandbox{}, fault.New(fault.NotFound, "there is no such sandbox", "see the thread's sandbox with: arbe thread show")
	}
	var defaults Defaults
	if err == nil {
		err = json.Unmarshal(r.Defaults, &defaults)
	}
	return Sandbox{
		Defaults: defaults,
		ID:       r.ID, House: r.HouseID, Environment: r.EnvironmentID, Provider: r.Provider, Ref: db.Zero(r.ProviderRef), OwnAccount: r.OwnAccount, Machine: db.Zero(r.MachineID),
		Status: Status(r.Status), Ephemeral: r.Ephemeral, Replaces: db.Zero(r.Replaces), ReplacesFor: db.Zero(r.ReplacesFor), CreatedAt: r.CreatedAt, DestroyedAt: db.Zero(r.DestroyedAt),
	}, err
}
