package commandtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Gated is a driver whose commands do nothing until the test lets them end. They end with their server.
type Gated struct {
	sandbox.Driver // methods that commands do not use

	// Ends returns when a command is to end. By default, it ends when the test says so.
	Ends func(line string) <-chan time.Time

	mu        sync.Mutex
	boxes     map[string]sandbox.Box
	running   map[string]sandbox.Labels // by the command's line
	gates     map[string]chan struct{}
	began     []string
	most      map[string]int // by house and by thread: the most that ran at once
	destroyed map[string]bool
	changed   chan struct{} // closed and replaced when something begins or ends
}

// NewGated returns a driver without sandboxes.
func NewGated() *Gated {
	return &Gated{boxes: map[string]sandbox.Box{}, running: map[string]sandbox.Labels{}, gates: map[string]chan struct{}{},
		most: map[string]int{}, destroyed: map[string]bool{}, changed: make(chan struct{})}
}

// End lets commands end.
func (g *Gated) End(lines ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, line := range lines {
		close(g.gate(line))
	}
}

// Order returns the lines of commands in the order in which they began.
func (g *Gated) Order() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.began)
}

// AtOnce returns the most commands of a house or a thread that ran at once.
func (g *Gated) AtOnce(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[id]
}

// HasBegun waits until a command has begun.
func (g *Gated) HasBegun(t testing.TB, line string) {
	t.Helper()
	g.until(t, line+" begins", func() bool { return slices.Contains(g.began, line) })
}

// HaveBegun waits until this many commands have begun.
func (g *Gated) HaveBegun(t testing.TB, n int) {
	t.Helper()
	g.until(t, fmt.Sprintf("%d commands begin", n), func() bool { return len(g.began) == n })
}

// Run waits until this many commands run.
func (g *Gated) Run(t testing.TB, n int) {
	t.Helper()
	g.until(t, fmt.Sprintf("%d commands run", n), func() bool { return len(g.running) == n })
}

// IsDestroyed waits until a sandbox is destroyed.
func (g *Gated) IsDestroyed(t testing.TB, ref string) {
	t.Helper()
	g.until(t, "the sandbox is destroyed", func() bool { return g.destroyed[ref] })
}

func (g *Gated) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	for {
		g.mu.Lock()
		done, changed := is(), g.changed
		g.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			g.mu.Lock()
			defer g.mu.Unlock()
			t.Fatalf("it does not happen that %s; %d run, %v began", what, len(g.running), g.began)
		}
	}
}

// Create creates a sandbox.
func (g *Gated) Create(_ context.Context, spec sandbox.Spec) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.boxes[spec.ID] = sandbox.Box{Ref: spec.ID, ID: spec.ID, Labels: spec.Labels}
	return spec.ID, nil
}

// Exec begins a command and waits until it may end.
func (g *Gated) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	line := cmd.Argv[len(cmd.Argv)-1]
	gate := g.begin(ref, line)
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.running, line)
		g.notify()
	}()
	var end <-chan time.Time
	if g.Ends != nil {
		end = g.Ends(line)
	}
	select {
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	case <-gate:
	case <-end:
	}
	return sandbox.Result{}, nil
}

// begin records that a command runs, and returns its gate.
func (g *Gated) begin(ref, line string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	labels := g.boxes[ref].Labels
	g.running[line] = labels
	g.began = append(g.began, line)
	perHouse, perThread := 0, 0
	for _, other := range g.running {
		if other.House == labels.House {
			perHouse++
		}
		if other.Thread == labels.Thread {
			perThread++
		}
	}
	g.most[labels.House], g.most[labels.Thread] = max(g.most[labels.House], perHouse), max(g.most[labels.Thread], perThread)
	g.notify()
	return g.gate(line)
}

// Destroy destroys a sandbox.
func (g *Gated) Destroy(_ context.Context, ref string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.destroyed[ref] = true
	g.notify()
	return nil
}

// Probe reports that every sandbox lives.
func (g *Gated) Probe(context.Context, string) (sandbox.Liveness, error) { return sandbox.Live, nil }

// List reports no sandbox.
func (g *Gated) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) { return nil, nil }

// Close does nothing.
func (g *Gated) Close(context.Context) error { return nil }

// gate returns the channel that a command waits for. Callers hold g.mu.
func (g *Gated) gate(line string) chan struct{} {
	if g.gates[line] == nil {
		g.gates[line] = make(chan struct{})
	}
	return g.gates[line]
}

// notify reports a change. Callers hold g.mu.
func (g *Gated) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}
