// Package remote turns any provider whose boxes can run a short program into a sandbox driver.
//
// Each provider's own way to run commands loses something: binary output, the order of two outputs, input, exit codes,
// background processes, or commands whose connection breaks. This package depends on none of these. It puts a program into
// each box, the keeper (package keeper, below), and makes every request by running it: each request is one short run with its
// reply in the output. The keeper launches commands and stays with them, so that they outlive the server and every
// connection. The driver repeats a request whose reply is lost. One place therefore keeps, and tests, the promises of all
// drivers.
//
// From bottom to top: provider.go says what a provider does; program.go holds the keeper; create.go and prepare.go get a box
// ready for it; call.go sends it requests; forget.go deletes the records of commands; launch.go, input.go, exec.go and files.go
// implement [sandbox.Launcher], terminal.go [sandbox.Terminals], dial.go [sandbox.Dialer], and door.go [sandbox.Relaying].
package remote

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Driver is a driver over a provider. It is safe for concurrent use.
type Driver struct {
	provider Provider

	mu sync.Mutex
	// keepers holds the paths of the keepers in boxes that are known to be prepared.
	keepers map[string]string
	// ran is when boxes ran something last.
	ran map[string]time.Time
	// inputs holds the commands that this driver launched with Input.
	inputs map[launchKey]bool
	// forgotten holds commands whose records are still to be deleted, by box; see forget.go.
	forgotten map[string]*forgotten
	// creating has a channel for each box that is being created. It is closed when the creation has ended.
	creating map[boxKey]chan struct{}
	doors    doors
	closed   context.Context
	close    context.CancelFunc
	// forgetting counts the records of commands that are being deleted.
	forgetting sync.WaitGroup
}

// forgotten are commands of a box whose records are still to be deleted.
type forgotten struct {
	ids  []string
	last time.Time // when the last one was added
	// tended means that a goroutine sends a request if there is no other.
	tended bool
}

type launchKey struct{ ref, id string }

// boxKey identifies a box before the provider has given it a reference.
type boxKey struct{ installation, id string }

var (
	_ sandbox.Launcher = (*Driver)(nil)
	_ sandbox.Bound    = (*Driver)(nil)
	_ sandbox.Offline  = (*Driver)(nil)
	_ sandbox.Dialer   = (*Driver)(nil)
	_ sandbox.Resting  = (*Driver)(nil)
	_ sandbox.Relaying = (*Driver)(nil)
	_ sandbox.Metered  = (*Driver)(nil)
)

// New returns a driver over a provider.
func New(p Provider) *Driver {
	d := &Driver{provider: p, keepers: map[string]string{}, ran: map[string]time.Time{}, inputs: map[launchKey]bool{}, forgotten: map[string]*forgotten{}, creating: map[boxKey]chan struct{}{}}
	d.doors.open, d.doors.relays = map[string]*door{}, map[string]relays{}
	d.closed, d.close = context.WithCancel(context.Background())
	return d
}

// Probe asks the provider whether a box exists.
func (d *Driver) Probe(ctx context.Context, ref string) (sandbox.Liveness, error) {
	return d.provider.Probe(ctx, ref)
}

// Destroy deletes a box.
func (d *Driver) Destroy(ctx context.Context, ref string) error {
	if err := d.provider.Destroy(ctx, ref); err != nil {
		return err
	}
	d.closeDoor(ref)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keepers, ref)
	delete(d.ran, ref)
	delete(d.forgotten, ref)
	for key := range d.inputs {
		if key.ref == ref {
			delete(d.inputs, key)
		}
	}
	return nil
}

// Quarantine stops a box and keeps its files.
func (d *Driver) Quarantine(ctx context.Context, ref string) (string, error) {
	d.mu.Lock()
	delete(d.ran, ref)
	d.mu.Unlock()
	return d.provider.Quarantine(ctx, ref)
}

// KeepAwake makes the provider keep a box running, if it would not do so by itself; see [sandbox.Resting].
func (d *Driver) KeepAwake(ctx context.Context, ref string, least time.Duration) error {
	resting, ok := d.provider.(Resting)
	if !ok {
		return nil
	}
	return d.patiently(ctx, func(ctx context.Context) error { return resting.KeepAwake(ctx, ref, least) })
}

// Meter reads the meter of a box, if the provider has meters; see [sandbox.Metered].
func (d *Driver) Meter(ctx context.Context, ref string) (m sandbox.Meter, err error) {
	metered, ok := d.provider.(Metered)
	if !ok {
		return m, nil
	}
	err = d.patiently(ctx, func(ctx context.Context) error {
		m, err = metered.Meter(ctx, ref)
		return err
	})
	return m, err
}

// List returns boxes.
func (d *Driver) List(ctx context.Context, want sandbox.Labels) ([]sandbox.Box, error) {
	return d.provider.List(ctx, want)
}

// Guarantees states what the driver guarantees of its boxes.
func (d *Driver) Guarantees() sandbox.Guarantees {
	g := d.provider.Guarantees()
	g.KillsAll = true // the keeper is the parent of every orphan
	g.Ports = true
	_, g.SecretFiles = d.provider.(Secretive)
	return g
}

// Machine identifies the machine to which the boxes are bound; empty if every server reaches them.
func (d *Driver) Machine() string {
	if near, ok := d.provider.(Near); ok {
		return near.Machine()
	}
	return ""
}

// Offline reports whether no box has a network.
func (d *Driver) Offline() bool {
	near, ok := d.provider.(Near)
	return ok && near.Offline()
}

// Close releases the driver. Processes in its boxes run on.
func (d *Driver) Close(ctx context.Context) error {
	d.close()
	done := make(chan struct{})
	go func() { d.doors.work.Wait(); d.forgetting.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return d.provider.Close(ctx)
}
