package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

const (
	// touchEvery is the time between two reports that this server's machines are up.
	touchEvery = 3 * time.Second
	// MachineAwayAfter is how long after its last report a machine counts as away.
	MachineAwayAfter = 10 * time.Second
)

// Machines tracks which machines are up. Some sandboxes are bound to a machine, and only that machine's servers can
// reach them (see [Bound]), so work on them goes there. A machine is up while one of its servers reports regularly.
// After a long time without a report it counts as gone, and its sandboxes as dead. It is safe for concurrent use.
type Machines struct {
	db        *db.DB
	drivers   *drivers
	goneAfter time.Duration
	q         *query.Queries
}

// OtherMachineError reports that a sandbox can be reached only from another machine, which is up or may come back.
type OtherMachineError struct{ Machine string }

func (e *OtherMachineError) Error() string { return "the sandbox is on another machine: " + e.Machine }

// MachineIDs returns the machines whose sandboxes this server reaches, sorted.
func (m *Machines) MachineIDs() []string { return m.drivers.machines() }

// MachineGone returns how long a machine must be without a report before its sandboxes count as dead.
func (m *Machines) MachineGone() time.Duration { return m.goneAfter }

// TouchMachines records that a server of this server's machines is up. It must be called regularly, because a machine
// without reports counts as away and later as gone.
func (m *Machines) TouchMachines(ctx context.Context) error {
	return m.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		for _, id := range m.MachineIDs() {
			err = errors.Join(err, m.q.TouchMachine(ctx, tx, id))
		}
		return err
	})
}

// ThreadMachineTx returns the machine of a thread's live sandbox; empty if there is none or every server reaches it.
func (m *Machines) ThreadMachineTx(ctx context.Context, tx pgx.Tx, threadID string) (string, error) {
	return m.q.ThreadMachine(ctx, tx, threadID)
}

// reaches reports whether this server reaches the sandboxes of a driver on a machine. Every server reaches those
// without a machine.
func (m *Machines) reaches(driver, machine string) bool {
	return machine == "" || m.drivers.machine(driver) == machine
}

// goneTx reports whether a machine is gone. The database's clock decides, because those of servers may differ.
func (m *Machines) goneTx(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	unseen, err := m.q.MachineUnseen(ctx, tx, id)
	return unseen > m.goneAfter.Seconds(), err
}

// KeepTouched calls [Machines.TouchMachines] regularly, until end is called.
func (m *Machines) KeepTouched(ctx context.Context, logger *slog.Logger) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(touchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := m.TouchMachines(ctx); err != nil && ctx.Err() == nil {
				logger.Warn("cannot report to the other servers that this machine is there; trying again", "error", err)
			}
		}
	})
	return func() { cancel(); loop.Wait() }
}

// MachineAway reports whether a machine is away.
func (m *Machines) MachineAway(ctx context.Context, id string) (away bool, err error) {
	err = m.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select not exists (select from machines where id = $1 and seen_at > now() - $2::interval)", id, MachineAwayAfter).Scan(&away)
	})
	return away, err
}
