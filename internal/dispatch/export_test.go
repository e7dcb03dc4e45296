package dispatch

import (
	"context"
	"time"

	"github.com/riverqueue/river"
)

// Tune changes the settings of the queue.
func (c *Config) Tune(f func(*river.Config)) { c.tune = f }

// SweepEvery makes the servers sweep at another pace.
func (c *Config) SweepEvery(pace time.Duration) { c.sweepEvery = pace }

// LockGrace makes the servers take another one for dead after another time.
func (c *Config) LockGrace(d time.Duration) { c.lockGrace = d }

// ToolNames returns the names of the tools that bots have.
func (d *Dispatcher) ToolNames() (names []string) {
	for _, t := range d.tools() {
		names = append(names, t.Name)
	}
	return names
}

// ReviveTurns does what a sweep does about turns.
func (d *Dispatcher) ReviveTurns(ctx context.Context) error { return d.reviveTurns(ctx) }

// What one server has workers for, and what of it a house gets only for its first command.
const (
	CommandWorkers = commandWorkers
	KeptFree       = int(commandWorkers * keptFree)
)

// NobodysJob is a job that no worker takes up, known by its name.
func NobodysJob(name string) river.InsertManyParams {
	return river.InsertManyParams{Args: periodicTaskArgs{Name: name}, InsertOpts: &river.InsertOpts{Queue: "nobodys"}}
}
