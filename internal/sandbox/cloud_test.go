package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// cloud is a provider whose boxes are directories. A test can make it slow or broken.
type cloud struct {
	t *testing.T

	mu      sync.Mutex
	boxes   map[string]sandbox.Box // by ref
	dirs    map[string]string
	created int

	// creating is called before a box is created, and executing before a command runs; either may wait or fail.
	creating  func(context.Context, sandbox.Spec) error
	executing func(context.Context, sandbox.Command) error
	// lists changes the answers of List.
	lists func([]sandbox.Box) []sandbox.Box
	// mute makes the provider unreachable for Probe.
	mute bool
}

func newCloud(t *testing.T) *cloud {
	return &cloud{t: t, boxes: map[string]sandbox.Box{}, dirs: map[string]string{}}
}

// live holds the existing boxes, and made counts all that were ever created.
func (c *cloud) live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.boxes)
}

func (c *cloud) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created
}

// lose makes a box disappear without telling anyone.
func (c *cloud) lose(ref string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.boxes, ref)
}

func (c *cloud) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	if c.creating != nil {
		if err := c.creating(ctx, spec); err != nil {
			return "", err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, box := range c.boxes {
		if box.ID == spec.ID {
			return ref, nil
		}
	}
	c.created++
	ref := fmt.Sprintf("cloud-%d", c.created)
	c.boxes[ref], c.dirs[ref] = sandbox.Box{Ref: ref, ID: spec.ID, Labels: spec.Labels}, c.t.TempDir()
	return ref, nil
}

func (c *cloud) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	if c.executing != nil {
		if err := c.executing(ctx, cmd); err != nil {
			return sandbox.Result{}, err
		}
	}
	c.mu.Lock()
	_, there := c.boxes[ref]
	dir := c.dirs[ref]
	c.mu.Unlock()
	if !there {
		return sandbox.Result{}, fault.New(fault.NotFound, "the box is gone", "make another")
	}
	limited := ctx
	if cmd.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, cmd.Timeout)
		defer cancel()
	}
	p := exec.CommandContext(limited, cmd.Argv[0], cmd.Argv[1:]...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) } // what a killed shell started would hold the output open
	p.Dir, p.Stdout, p.Stderr = dir, cmd.Stdout, cmd.Stderr
	err := p.Run()
	if ctx.Err() != nil {
		return sandbox.Result{}, ctx.Err()
	}
	if limited.Err() != nil {
		return sandbox.Result{ExitCode: 124, TimedOut: true}, nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return sandbox.Result{ExitCode: exit.ExitCode()}, nil
	}
	return sandbox.Result{}, err
}

func (c *cloud) Probe(_ context.Context, ref string) (sandbox.Liveness, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, there := c.boxes[ref]; {
	case c.mute:
		return sandbox.Unknown, nil
	case there:
		return sandbox.Live, nil
	}
	return sandbox.Gone, nil
}

func (c *cloud) Destroy(_ context.Context, ref string) error {
	c.lose(ref)
	return nil
}

func (c *cloud) Quarantine(_ context.Context, ref string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	box := c.boxes[ref]
	box.Quarantined = true
	c.boxes[ref] = box
	return c.dirs[ref], nil
}

func (c *cloud) List(_ context.Context, want sandbox.Labels) (list []sandbox.Box, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, box := range c.boxes {
		if box.Labels.Match(want) {
			list = append(list, box)
		}
	}
	if c.lists != nil {
		list = c.lists(list)
	}
	return list, nil
}

// The resolver calls these methods only for repositories of this machine, or never. Tests of those use a real driver.

func (c *cloud) Start(context.Context, string, sandbox.Command) error { return errors.ErrUnsupported }
func (c *cloud) Upload(context.Context, string, string, fs.FileMode, io.Reader) error {
	return errors.ErrUnsupported
}
func (c *cloud) Download(context.Context, string, string) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}
func (c *cloud) Close(context.Context) error { return nil }
