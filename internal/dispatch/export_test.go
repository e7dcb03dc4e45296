package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Foreground changes how long a bot's call waits for its command.
func (c *Config) Foreground(d time.Duration) { c.foreground = d }

// Private lets bots fetch from non-public destinations, and shortens the wait.
func (f Fetch) Private(hostPort string, most time.Duration) Fetch {
	f.private, f.time = func(to string) bool { return to == hostPort }, most
	return f
}

// ToolNames returns the names of the tools that bots have.
func (d *Dispatcher) ToolNames() (names []string) {
	for _, t := range d.tools {
		names = append(names, t.Name)
	}
	return names
}

// WithDefaults returns the limits of a server with these settings.
func WithDefaults(l Limits) Limits { return l.withDefaults() }

// ReviveTurns sweeps turns.
func (d *Dispatcher) ReviveTurns(ctx context.Context) error { return d.reviveTurns(ctx) }

// Turning returns the number of turns on which the server works.
func (d *Dispatcher) Turning() int { return len(d.Jobs.Running(turnArgs{}.Kind())) }

// Server returns the name under which the server takes jobs.
func (d *Dispatcher) Server() string { return d.Jobs.Server().String() }

// The workers of one server, and how many of them are reserved for a house's first command.
const (
	CommandWorkers = 64
	KeptFree       = CommandWorkers / 8
)

// RunTool runs a bot's tool as a turn does.
func (d *Dispatcher) RunTool(ctx context.Context, name string, c turn.Call) (turn.Result, error) {
	for _, t := range d.tools {
		if t.Name == name {
			return t.Run(ctx, c)
		}
	}
	return turn.Result{}, errors.New("there is no tool " + name)
}

// MeasuredLogs measures the logs of all houses now, and returns the size of those of a house.
func (d *Dispatcher) MeasuredLogs(ctx context.Context, scope db.Scope) (LogsUsed, error) {
	if err := d.logs.measure(ctx); err != nil {
		return LogsUsed{}, err
	}
	d.logs.mu.Lock()
	clear(d.logs.known)
	clear(d.logs.wrote)
	d.logs.mu.Unlock()
	return d.logs.used(ctx, scope.House)
}
