package sandbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Metered is a [Driver] that says which of its boxes run, and what that costs. Its List says so, too. The running time of other
// drivers' boxes is not counted.
type Metered interface {
	Driver

	// Meter reads the meter of a box. It starts nothing.
	Meter(ctx context.Context, ref string) (Meter, error)
}

// knownFor is the longest time between two moments at which a box was known to run that counts as running time. It is long enough
// for two sweeps and a restart of the servers.
const knownFor = 3 * sweepEach

// meterTime limits the reading of a meter.
const meterTime = 20 * time.Second

// observeTx counts the running time of a sandbox and its cost: for the sandbox, and for its house, which keeps the count when the
// sandbox is deleted. Everything that learns whether a sandbox runs calls it. The time between two moments at which a sandbox was known
// to run counts if it is at most knownFor; one that was found stopped or gone ran until it was last known to run.
//
// It locks the count of the house's day, so it must be the last statement of its transaction that waits for a lock.
func (s *Sandboxes) observeTx(ctx context.Context, tx pgx.Tx, id string, o observation) error {
	return s.q.CountRunningTime(ctx, tx, query.CountRunningTimeParams{
		SandboxID: id, State: string(o.known), At: db.Null(o.at), Hourly: o.hourly, Longest: knownFor.Seconds(), Before: o.before.Milliseconds(),
	})
}

// observe is observeTx in a transaction of its own. A failure is harmless, because another observation follows soon.
func (s *Sandboxes) observe(ctx context.Context, scope db.Scope, id string, o observation) {
	if err := s.db.In(ctx, scope, func(tx pgx.Tx) error { return s.observeTx(ctx, tx, id, o) }); err != nil {
		s.logger.DebugContext(ctx, "cannot count the running time of a sandbox", "sandbox", id, "error", fault.From(err).Detail())
	}
}

// read observes a sandbox whose meter was read at a moment.
func (s *Sandboxes) read(ctx context.Context, scope db.Scope, id string, m Meter, at time.Time) {
	o := observation{known: knownRunning, at: at, hourly: &m.HourlyMicros}
	switch m.Power {
	case "":
		return
	case PowerOff:
		o.known = knownStopped
	}
	s.observe(ctx, scope, id, o)
}

// clock measures how long the boxes of a build run before their sandbox is ready. The zero value has measured nothing.
type clock struct {
	meter Meter
	began time.Time     // of the box that runs now; zero if none does
	ended time.Duration // of boxes that were deleted
}

// start begins with a box that was just created, unless its driver is not [Metered].
func (c *clock) start(ctx context.Context, d Driver, ref string) {
	metered, ok := d.(Metered)
	if !ok {
		return
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, meterTime)
	defer cancel()
	// Without an answer, the next sweep begins to count.
	if m, err := metered.Meter(limited, ref); err == nil && m.Power != "" {
		c.meter, c.began = m, began
	}
}

// stop ends with the box.
func (c *clock) stop() { c.began, c.ended = time.Time{}, c.ran() }

// ran returns the time of all boxes.
func (c *clock) ran() time.Duration {
	if c.began.IsZero() {
		return c.ended
	}
	return c.ended + time.Since(c.began)
}

// countTx counts the running time of a build. Its sandbox is ready if live is true. Otherwise only the house has a count. As with
// observeTx, nothing that waits for a lock may follow.
func (s *Sandboxes) countTx(ctx context.Context, tx pgx.Tx, box Sandbox, c *clock, live bool) error {
	switch {
	case c.meter.Power == "":
		return nil
	case live:
		return s.observeTx(ctx, tx, box.ID, observation{known: knownRunning, hourly: &c.meter.HourlyMicros, before: c.ran()})
	}
	return s.q.AddRunningTime(ctx, tx, query.AddRunningTimeParams{HouseID: box.House, Provider: box.Provider, Ms: c.ran().Milliseconds(), Hourly: c.meter.HourlyMicros})
}

// Spending is the running time of a house's sandboxes since a moment. It includes that of deleted ones.
type Spending struct {
	Running
	Since time.Time
}

// Spending returns the running time of the scope's house since the beginning of the month, in UTC.
func (s *Sandboxes) Spending(ctx context.Context, scope db.Scope) (sum Spending, err error) {
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		row, err := s.q.SandboxSpending(ctx, tx, scope.House)
		sum = Spending{runningOf(row.RunningMs, row.UnpricedMs, row.CostMicros), row.Since}
		return err
	})
	return sum, err
}
