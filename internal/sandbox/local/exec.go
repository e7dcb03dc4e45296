//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Exit codes that a shell uses, and we with it.
const (
	codeTimedOut      = 124
	codeNotExecutable = 126
	codeNotFound      = 127
)

// execution is one command that was started in a container.
type execution struct {
	*child
	container *container
	runtime   *ociRuntime
	cgroups   cgroups
	group     string // its control group; empty where there are none
}

var executions atomic.Uint64 // numbers control groups

// Exec runs one command. A command that ends leaves behind what it put into the background, until the
// box is stopped; one that is cancelled or runs out of time takes everything with it.
//
// Cmd.Stdin is read by a goroutine of its own, which ends when Stdin answers once more after the command
// has ended: Exec does not wait for it.
func (d *Driver) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	b, err := d.find(ref)
	if err != nil {
		return sandbox.Result{}, err
	}
	if err := check(cmd); err != nil {
		return sandbox.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, fault.From(err)
	}
	std, err := openPipes(cmd)
	if err != nil {
		return sandbox.Result{}, readable(ctx, err, "the command could not be started")
	}
	defer std.close()

	begin := time.Now()
	run, err := d.launchCommand(ctx, b, cmd, std.inside)
	std.inside.Close()
	if err != nil {
		return notStarted(ctx, cmd, err, begin)
	}
	defer run.container.foreground.Add(-1)
	oomBefore := run.oomKills()
	std.pump(cmd)
	result, err := run.wait(ctx, cmd.Timeout)
	std.drain()
	run.forget()

	if code, failed := std.execFailed(result.ExitCode); failed {
		result.ExitCode = code
	}
	result.Duration = time.Since(begin)
	result.OutOfMemory = run.oomKills() > oomBefore
	return result, err
}

// Start starts a command and returns once it runs.
func (d *Driver) Start(ctx context.Context, ref string, cmd sandbox.Command) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	if cmd.Stdin != nil || cmd.Stdout != nil || cmd.Stderr != nil || cmd.Timeout != 0 {
		return fault.New(fault.Invalid, "a command that is started in the background has no input, output or time limit",
			"leave them out, or redirect inside the command")
	}
	if err := check(cmd); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return readable(ctx, err, "the command could not be started")
	}
	defer null.Close()
	begin := time.Now()
	run, err := d.launchCommand(ctx, b, cmd, streams{null, null, null})
	if err == nil {
		run.container.foreground.Add(-1)
		go func() { <-run.done; run.forget() }()
		return nil
	}
	result, err := notStarted(ctx, cmd, err, begin)
	if err == nil {
		err = fault.Newf(fault.Invalid, "check the command's name and path", "%q cannot be run in the sandbox (exit code %d)", cmd.Argv[0], result.ExitCode)
	}
	return err
}

// check refuses what cannot be handed to a program exactly as it was given.
func check(cmd sandbox.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fault.New(fault.Invalid, "the command is empty", "name a program to run")
	}
	texts := append([]string{cmd.Dir}, cmd.Argv...)
	for name, value := range cmd.Env {
		if name == "" || strings.Contains(name, "=") {
			return fault.Newf(fault.Invalid, "use letters, digits and _", "%q is not a name for an environment variable", name)
		}
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fault.New(fault.Invalid, "a command's arguments and environment must be UTF-8 without NUL", "pass other bytes through a file or the standard input")
		}
	}
	return nil
}

// attempts is how often a command is tried to be started in a box that kills what starts it: because it
// has no room, or because another command is killing all it can.
const attempts = 10

// launchCommand starts a command in a box, as one of its container's foreground. A box that has no room
// for it is relieved.
func (d *Driver) launchCommand(ctx context.Context, b *box, cmd sandbox.Command, std streams) (run *execution, err error) {
	for range attempts {
		var c *container
		err = b.use(ctx, func(running *container) (err error) {
			c = running
			run, err = d.begin(ctx, c, cmd, std)
			return err
		})
		failed, ok := errors.AsType[*failure](err)
		if !ok || c == nil {
			return run, err // started, or not for a reason that lies in the container
		}
		if why := failed.reason(); why != noRoom && why != unknownReason {
			return nil, err
		}
		b.relieve(ctx, c)
	}
	return nil, err
}

// begin starts a command in a container that runs.
func (d *Driver) begin(ctx context.Context, c *container, cmd sandbox.Command, std streams) (*execution, error) {
	for _, f := range std {
		// So that /dev/stdout can be opened by the box's user. The null device stays as it is.
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			if err := f.Chown(int(c.who.hostUID), int(c.who.hostGID)); err != nil {
				return nil, err
			}
		}
	}
	run := &execution{container: c, runtime: d.runtime, cgroups: d.cgroups}
	var arg string
	if c.cgroup != "" && !d.runtime.apart {
		name := fmt.Sprintf("exec-%d", executions.Add(1))
		run.group, arg = c.cgroup+"/"+name, d.cgroups.execArg(name)
		if err := d.cgroups.add(run.group); err != nil {
			return nil, err
		}
	}
	child, err := d.runtime.exec(ctx, c.id, c.describe(cmd), arg, std)
	run.child = child
	if err != nil {
		run.kill()
		run.forget()
		return nil, err
	}
	c.foreground.Add(1)
	return run, nil
}

// wait waits for the command's own process to end; when ctx ends or the time is up it makes it end.
func (r *execution) wait(ctx context.Context, limit time.Duration) (sandbox.Result, error) {
	var timeUp <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeUp = timer.C
	}
	select {
	case <-r.done:
		return sandbox.Result{ExitCode: r.exitCode()}, nil
	case <-timeUp:
		r.kill()
		<-r.done
		return sandbox.Result{ExitCode: codeTimedOut, TimedOut: true}, nil
	case <-ctx.Done():
		r.kill()
		<-r.done
		return sandbox.Result{ExitCode: r.code}, fault.From(ctx.Err())
	}
}

// exitCode is how the command ended, when it has. The exec of a runtime that is apart ends with 128 also
// when the box ended under the command: then it was killed.
func (r *execution) exitCode() int {
	if r.runtime.apart && r.code == 128 {
		select {
		case <-r.container.done:
			return 128 + int(unix.SIGKILL)
		case <-time.After(grace):
		}
	}
	return r.code
}

// kill ends everything the command started.
func (r *execution) kill() {
	if r.group != "" {
		_ = r.cgroups.kill(r.group, 5*time.Second) // what does not die is stuck in the kernel
	} else if r.child != nil && r.runtime.apart {
		r.runtime.killApart(r.container.id, r.inside)
	} else if r.child != nil {
		killTree(r.process.Pid, processes, signalProcess)
	}
	if r.child != nil {
		_ = r.process.Kill()
	}
}

// forget removes the command's control group, unless something it left in the background lives there:
// then it goes with the box.
func (r *execution) forget() {
	if r.group != "" {
		_ = r.cgroups.drop(r.group)
	}
}

func (r *execution) oomKills() int {
	if r.container.cgroup == "" {
		return 0
	}
	return r.cgroups.oomKills(r.container.cgroup)
}

// notStarted says why a command did not start: as a result where a shell would, else as an error.
func notStarted(ctx context.Context, cmd sandbox.Command, err error, begin time.Time) (sandbox.Result, error) {
	result := sandbox.Result{Duration: time.Since(begin)}
	why := unknownReason
	if failed, ok := errors.AsType[*failure](err); ok {
		why = failed.reason()
	}
	text := ""
	switch why {
	case notExecutable:
		result.ExitCode, text = codeNotExecutable, "cannot be executed"
	case noProgram:
		result.ExitCode, text = codeNotFound, "command not found"
	case noDirectory:
		return result, fault.Newf(fault.Invalid, "make it first, or start elsewhere", "there is no directory %q in the sandbox that commands may start in", cmd.Dir).Because(err)
	case tooLong:
		return result, fault.New(fault.Invalid, "the command's arguments or environment are too long", "pass them through a file or the standard input").Because(err)
	case noRoom:
		return result, fault.New(fault.Exhausted, "the sandbox has no room for another process: its memory or process limit is used up",
			"end something that runs in it, or raise the environment's limits").Because(err)
	default:
		return result, readable(ctx, err, "the command could not be started")
	}
	if cmd.Stderr != nil {
		_, _ = fmt.Fprintf(cmd.Stderr, "%s: %s\n", cmd.Argv[0], text) // as a shell says it
	}
	return result, nil
}
