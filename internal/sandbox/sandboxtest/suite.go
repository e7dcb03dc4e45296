//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Guarantees are a driver's statements about its boxes, and the test's own knowledge about them.
type Guarantees struct {
	sandbox.Guarantees
	// SharedHost means that boxes run on the test's machine. The driver protects the machine, so the suite tests
	// isolation from inside.
	SharedHost bool
}

// patience limits every check, because a hanging check would hide the results of the others.
const patience = 3 * time.Minute

// canary is a value in the server's environment. Like the server's secrets there, it must not be found in any box.
const canary = "canary-5f1c9b7e"

type suite struct {
	driver     sandbox.Driver
	guarantees Guarantees
	launcher   sandbox.Launcher // if not nil, runs commands in place of the driver's Exec
}

// Properties of drivers whose boxes run on the test's machine, for [need].
const (
	sharedHost   = "boxes share the test's machine"
	sharedKernel = "boxes share the machine's kernel"
)

// need skips a check of a property that the driver does not state.
func need(t *testing.T, declared bool, what string) {
	t.Helper()
	if !declared {
		t.Skip("the driver does not state: " + what)
	}
}

// box is a live box of one test.
type box struct {
	*suite
	ref string
}

var made atomic.Int64

// freshID returns an id that no other box has. It contains the process id, because other processes may run the suite
// too.
func freshID() string {
	return "suite-" + fmt.Sprintf("%d-%d", os.Getpid(), made.Add(1))
}

// newBox makes a box that is destroyed with the test.
func (s *suite) newBox(t *testing.T, l sandbox.Limits) *box {
	t.Helper()
	ref, err := s.driver.Create(t.Context(), sandbox.Spec{ID: freshID(), Limits: l})
	if err != nil {
		t.Fatalf("create: %s", fault.From(err).Detail())
	}
	t.Cleanup(func() {
		if err := s.driver.Destroy(context.Background(), ref); err != nil {
			t.Errorf("destroy: %s", fault.From(err).Detail())
		}
	})
	return &box{suite: s, ref: ref}
}

// small is enough for a line of shell.
var small = sandbox.Limits{MemoryMB: 256, DiskMB: 64, PIDs: 128, CPUs: 2}

// outcome is the result of one command.
type outcome struct {
	sandbox.Result
	stdout, stderr string
}

// run runs a command, and fails the test if it cannot run.
func (b *box) run(t *testing.T, cmd sandbox.Command) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exec := b.driver.Exec
	if b.launcher != nil {
		exec = b.launch
	}
	result, err := exec(ctx, b.ref, cmd)
	if err != nil {
		t.Fatalf("exec %q: %s", cmd.Argv, fault.From(err).Detail())
	}
	return outcome{result, stdout.String(), stderr.String()}
}

// launch launches a command, as a server does. The time limit applies to the start, and then again to the command
// itself.
func (b *box) launch(ctx context.Context, ref string, cmd sandbox.Command) (result sandbox.Result, err error) {
	limit, stdout, stderr := cmd.Timeout, cmd.Stdout, cmd.Stderr
	cmd.Timeout, cmd.Stdout, cmd.Stderr = 0, nil, nil
	id, begin := freshID(), time.Now()
	timedOut := func() (sandbox.Result, error) {
		return sandbox.Result{ExitCode: 124, TimedOut: true, Duration: time.Since(begin)}, nil
	}
	launching, stop := ctx, func() {}
	if limit > 0 {
		launching, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	if err := b.launcher.Launch(launching, ref, id, cmd); err != nil {
		if launching.Err() != nil && ctx.Err() == nil {
			return timedOut()
		}
		return result, err
	}
	defer func() { err = errors.Join(err, b.launcher.Forget(ctx, ref, id)) }()
	var over atomic.Bool
	if limit > 0 {
		defer time.AfterFunc(limit, func() {
			over.Store(true)
			_ = b.launcher.End(ctx, ref, id, 0) // if it fails, Follow waits until ctx ends, which fails the test
		}).Stop()
	}
	var ended sandbox.Record
	err = b.launcher.Follow(ctx, ref, id, 0, func(r sandbox.Record) error {
		switch r.Kind {
		case sandbox.RecordStdout:
			_, err = stdout.Write(r.Data)
		case sandbox.RecordStderr:
			_, err = stderr.Write(r.Data)
		case sandbox.RecordExit:
			ended = r
		}
		return err
	})
	switch {
	case err != nil:
		return result, err
	case over.Load():
		return timedOut()
	}
	return sandbox.Result{ExitCode: ended.ExitCode, OutOfMemory: ended.OutOfMemory, Duration: time.Since(begin)}, nil
}

func (b *box) sh(t *testing.T, script string) outcome {
	t.Helper()
	return b.run(t, sandbox.Command{Argv: []string{"sh", "-c", script}})
}

// put uploads a small file.
func (b *box) put(t *testing.T, path, content string) {
	t.Helper()
	if err := b.driver.Upload(t.Context(), b.ref, path, 0o644, strings.NewReader(content)); err != nil {
		t.Fatalf("upload %s: %s", path, fault.From(err).Detail())
	}
}

// get downloads a small file.
func (b *box) get(t *testing.T, path string) string {
	t.Helper()
	r, err := b.driver.Download(t.Context(), b.ref, path)
	if err != nil {
		t.Fatalf("download %s: %s", path, fault.From(err).Detail())
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("download %s: %v", path, err)
	}
	return string(content)
}

// check is a line of shell and its exact output.
type check struct {
	name   string
	script string
	stdout string
	// fails means that the exit code is not 0; stdout is not compared.
	fails bool
	// kernel means that the check is about the machine's kernel.
	kernel bool
}

// verify runs checks one after another.
func (b *box) verify(t *testing.T, checks []check) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			need(t, !c.kernel || !b.guarantees.OwnKernel, sharedKernel)
			got := b.sh(t, c.script)
			switch {
			case c.fails && got.ExitCode == 0:
				t.Errorf("%s\nsucceeded, with stdout %q", c.script, got.stdout)
			case !c.fails && (got.ExitCode != 0 || got.stdout != c.stdout):
				t.Errorf("%s\nexit code %d, stdout %q, stderr %q\nwant stdout %q", c.script, got.ExitCode, got.stdout, got.stderr, c.stdout)
			}
		})
	}
}

// wantCode checks the code of an error rather than its text, which differs between drivers.
func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("error %v has the code %q, want %q", err, got, want)
	}
}
