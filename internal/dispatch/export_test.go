package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Tune changes the settings of the queue.
func (c *Config) Tune(f func(*river.Config)) { c.tune = f }

// SweepEvery makes the servers sweep at another pace.
func (c *Config) SweepEvery(pace time.Duration) { c.sweepEvery = pace }

// LockGrace makes the servers take another one for dead after another time.
func (c *Config) LockGrace(d time.Duration) { c.lockGrace = d }

// Foreground changes how long a bot's call waits for its command.
func (c *Config) Foreground(d time.Duration) { c.foreground = d }

// Private lets bots fetch from a destination that is not public, and wait a shorter time.
func (f Fetch) Private(hostPort string, most time.Duration) Fetch {
	f.private, f.time = func(to string) bool { return to == hostPort }, most
	return f
}

// ToolNames returns the names of the tools that bots have.
func (d *Dispatcher) ToolNames() (names []string) {
	for _, t := range d.tools() {
		names = append(names, t.Name)
	}
	return names
}

// WithDefaults returns the limits of a server with these settings.
func WithDefaults(l Limits) Limits { return l.withDefaults() }

// ReviveTurns does what a sweep does about turns.
func (d *Dispatcher) ReviveTurns(ctx context.Context) error { return d.reviveTurns(ctx) }

// Turning returns how many turns the server works on.
func (d *Dispatcher) Turning() int { return len(d.turning.jobs()) }

// Server returns the name under which the server takes jobs.
func (d *Dispatcher) Server() string { return d.liveness.name() }

// SetStates reports to the queue, as its library does, that jobs have ended, and returns the jobs that it changed. With tx
// it does so within that transaction.
func (d *Dispatcher) SetStates(ctx context.Context, tx pgx.Tx, jobs ...int64) (changed []int64, err error) {
	n := len(jobs)
	params := &riverdriver.JobSetStateIfRunningManyParams{
		ID: jobs, Attempt: make([]*int, n), ErrData: make([][]byte, n), FinalizedAt: make([]*time.Time, n), MetadataDoMerge: make([]bool, n),
		MetadataUpdates: make([][]byte, n), ScheduledAt: make([]*time.Time, n), Schema: db.JobSchema,
	}
	for i := range jobs {
		params.FinalizedAt[i] = new(time.Now())
		params.State = append(params.State, rivertype.JobStateCompleted)
	}
	var exec riverdriver.Executor = d.queue.Driver().GetExecutor()
	if tx != nil {
		exec = d.queue.Driver().UnwrapExecutor(tx)
	}
	rows, err := d.queue.Pilot().JobSetStateIfRunningMany(ctx, exec, params)
	for _, r := range rows {
		changed = append(changed, r.ID)
	}
	return changed, err
}

// What one server has workers for, and what of it a house gets only for its first command.
const (
	CommandWorkers = commandWorkers
	KeptFree       = int(commandWorkers * keptFree)
)

// NobodysJob is a job that no worker takes up, known by its name.
func NobodysJob(name string) river.InsertManyParams {
	return river.InsertManyParams{Args: periodicTaskArgs{Name: name}, InsertOpts: &river.InsertOpts{Queue: "nobodys"}}
}

// RunTool runs a tool of bots as a turn does.
func (d *Dispatcher) RunTool(ctx context.Context, name string, c turn.Call) (turn.Result, error) {
	for _, t := range d.tools() {
		if t.Name == name {
			return t.Run(ctx, c)
		}
	}
	return turn.Result{}, errors.New("there is no tool " + name)
}
