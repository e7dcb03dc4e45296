//go:build linux

package remote_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// provider is a minimal provider. Several drivers may share one.
type provider struct {
	host *hostbox.Host

	mu    sync.Mutex
	boxes map[string]*rented // by id

	// before and after, unless nil, are called around each run and can make it fail.
	before, after func(argv []string) error
}

// rented is a box. The provider's lock guards all of it.
type rented struct {
	machine *hostbox.Box
	listed  sandbox.Box
}

func newProvider(t testing.TB) *provider {
	return &provider{host: hostbox.New(t), boxes: map[string]*rented{}}
}

func (p *provider) Create(_ context.Context, spec sandbox.Spec) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.boxes[spec.ID]; ok {
		return spec.ID, nil
	}
	machine, err := p.host.Create(spec.ID)
	if err == nil {
		err = machine.Start()
	}
	p.boxes[spec.ID] = &rented{machine, sandbox.Box{Ref: spec.ID, ID: spec.ID, Labels: spec.Labels, CreatedAt: time.Now()}}
	return spec.ID, err
}

// use returns the machine of a box, starting it if necessary.
func (p *provider) use(ref string) (*hostbox.Box, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	box, ok := p.boxes[ref]
	if !ok {
		return nil, gone
	}
	box.listed.Quarantined = false
	return box.machine, box.machine.Start()
}

var gone = fault.New(fault.NotFound, "the box is gone", "make another")

func (p *provider) Run(ctx context.Context, ref string, argv []string, input []byte) ([]byte, int, error) {
	machine, err := p.use(ref)
	if err != nil {
		return nil, 0, err
	}
	if p.before != nil {
		if err := p.before(argv); err != nil {
			return nil, 0, err
		}
	}
	cmd, err := machine.Command(ctx, hostbox.User, argv...)
	if err != nil {
		return nil, 0, gone
	}
	cmd.Stdin = bytes.NewReader(input)
	var out []byte
	ended := make(chan error, 1)
	go func() {
		said, err := cmd.CombinedOutput()
		out = said
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		return nil, 0, ctx.Err() // the program runs on
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if _, there := p.use(ref); there != nil {
			return nil, 0, gone
		}
		return out, exit.ExitCode(), nil
	}
	if err == nil && p.after != nil {
		err = p.after(argv)
	}
	return out, 0, err
}

func (p *provider) Probe(_ context.Context, ref string) (sandbox.Liveness, error) {
	if ref == "" || ref[0] == '.' || bytes.ContainsAny([]byte(ref), " \x00") {
		return sandbox.Unknown, fault.New(fault.Invalid, "this is no reference", "give one")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.boxes[ref]; ok {
		return sandbox.Live, nil
	}
	return sandbox.Gone, nil
}

func (p *provider) Destroy(_ context.Context, ref string) error {
	p.mu.Lock()
	box, ok := p.boxes[ref]
	delete(p.boxes, ref)
	p.mu.Unlock()
	if !ok {
		return nil
	}
	return box.machine.Remove()
}

func (p *provider) Quarantine(_ context.Context, ref string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	box, ok := p.boxes[ref]
	if !ok {
		return "", gone
	}
	box.machine.Stop()
	box.listed.Quarantined = true
	return "the test", nil
}

func (p *provider) Asleep(_ context.Context, ref string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	box, ok := p.boxes[ref]
	if !ok {
		return false, gone
	}
	return box.listed.Quarantined, nil
}

func (p *provider) List(_ context.Context, want sandbox.Labels) (list []sandbox.Box, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, box := range p.boxes {
		if box.listed.Labels.Match(want) {
			list = append(list, box.listed)
		}
	}
	return list, nil
}

func (p *provider) Close(context.Context) error { return nil }

func (p *provider) Guarantees() sandbox.Guarantees { return sandbox.Guarantees{UserID: hostbox.User} }

func TestConformance(t *testing.T) {
	p := newProvider(t)
	sandboxtest.Run(t, false, func(*testing.T) sandbox.Driver { return remote.New(p) })
}

func TestWhatRunsOutlivesItsDriver(t *testing.T) {
	p := newProvider(t)
	sandboxtest.RunSurvival(t, func(*testing.T) sandbox.Driver { return remote.New(p) })
}

func TestLaunchedCommands(t *testing.T) {
	p := newProvider(t)
	sandboxtest.RunLaunches(t, func(*testing.T) sandbox.Launcher { return remote.New(p) })
}

func TestTerminals(t *testing.T) {
	p := newProvider(t)
	sandboxtest.RunTerminals(t, func(*testing.T) sandbox.Terminals { return remote.New(p) })
}
