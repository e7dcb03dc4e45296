//go:build linux

package local

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// The exit codes that shells use in these cases.
const (
	codeTimedOut      = 124
	codeNotExecutable = 126
	codeNotFound      = 127
)

// Exec runs a command. Background processes of a command continue until the box is stopped. A command that is cancelled
// or times out is killed with everything it started.
//
// A goroutine reads cmd.Stdin. It ends when Stdin returns after the command has ended. Exec does not wait for it,
// because a Read of Stdin cannot be cancelled.
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
	limited, cancel := ctx, func() {}
	if cmd.Timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, cmd.Timeout)
	}
	defer cancel()
	c, run, err := d.launchCommand(limited, b, cmd, fate{}, std.inside)
	// The command has its own copies. If ours stayed open, its outputs would never end.
	std.inside.Close()
	if err != nil && limited.Err() != nil {
		return cut(ctx, begin)
	}
	if err != nil {
		return notStarted(ctx, cmd, err, begin)
	}
	oomBefore := d.oomKills(c)
	std.pump(cmd)
	var result sandbox.Result
	select {
	case <-run.ended():
		result.ExitCode = run.exitCode()
	case <-limited.Done():
		run.kill()
		<-run.ended()
		result, err = cut(ctx, begin)
	}
	std.drain()
	c.dropping.add(std.outputs...)
	result.OutOfMemory = d.oomKills(c) > oomBefore
	c.leave(run)
	if s, ok := run.(*supervised); ok {
		if s.close(); !result.OutOfMemory {
			c.endAttackers(s)
		}
	}
	result.Duration = time.Since(begin)
	return result, err
}

// cut returns the result of a command that timed out, or the error if the caller's context ended.
func cut(ctx context.Context, begin time.Time) (sandbox.Result, error) {
	if ctx.Err() != nil {
		return sandbox.Result{Duration: time.Since(begin)}, fault.From(ctx.Err())
	}
	return sandbox.Result{ExitCode: codeTimedOut, TimedOut: true, Duration: time.Since(begin)}, nil
}

// oomKills returns how often the kernel killed a process of a container because its memory was used up.
func (d *Driver) oomKills(c *container) int {
	if c.cgroup == "" {
		return 0
	}
	return d.cgroups.oomKills(c.cgroup)
}

// check refuses commands that cannot be passed on exactly as given. An argument ends with NUL, and gVisor's runtime
// gets a command as JSON, which has only UTF-8.
func check(cmd sandbox.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fault.New(fault.Invalid, "the command is empty", "name a program to run")
	}
	if cmd.Terminal != nil {
		return fault.New(fault.Invalid, "a command with a terminal must be launched", "launch it")
	}
	if cmd.Merged && cmd.Stderr != nil {
		return fault.New(fault.Invalid, "a command whose outputs are merged has no standard error of its own", "leave Stderr out")
	}
	for name := range cmd.Secrets {
		if !validSecret.MatchString(name) {
			return fault.Newf(fault.Invalid, "use letters, digits, ., - and _, and no dot at the beginning", "%q is not a name for a file of a secret", name)
		}
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

// attempts is how often to try to start a command in a box that kills it at its start, because the box has no room or
// another command kills everything it can.
const attempts = 10

// launchCommand starts a command in a box and registers it as waited for. If the box has no room, it ends processes
// that earlier commands left there.
func (d *Driver) launchCommand(ctx context.Context, b *box, cmd sandbox.Command, as fate, std streams) (c *container, run command, err error) {
	for attempt := range attempts {
		err = b.use(ctx, func(running *container) (err error) {
			c = running
			run, err = d.begin(ctx, c, cmd, as, std)
			return err
		})
		if err == nil || c == nil || ctx.Err() != nil {
			return c, run, err
		}
		if why := reasonOf(err); why != noRoom && why != unknownReason {
			return nil, nil, err
		}
		if c.ownKernel {
			b.relieve(ctx, c)
		} else if (attempt > 0 || c.underAttack()) && !c.endLeftovers() {
			b.relieve(ctx, c)
		}
		if as.record != nil {
			return nil, nil, err // the caller tries again with another record
		}
	}
	return nil, nil, err
}

// begin starts a command in a running container, with the files of its secrets.
func (d *Driver) begin(ctx context.Context, c *container, cmd sandbox.Command, as fate, std streams) (command, error) {
	if len(cmd.Secrets) == 0 {
		return d.beginCommand(ctx, c, cmd, as, std)
	}
	if c.ownKernel {
		return nil, fault.New(fault.Precondition, "gVisor's sandboxes cannot have secrets as files", "bind the secret as an environment variable")
	}
	if err := c.placeSecrets(cmd.Secrets); err != nil {
		return nil, err
	}
	run, err := d.beginCommand(ctx, c, cmd, as, std)
	if err != nil {
		c.dropSecrets(slices.Collect(maps.Keys(cmd.Secrets)))
		return nil, err
	}
	return run, nil
}

func (d *Driver) beginCommand(ctx context.Context, c *container, cmd sandbox.Command, as fate, std streams) (command, error) {
	if cmd.Terminal != nil {
		terminal, err := c.newTerminal(*cmd.Terminal)
		if err != nil {
			return nil, err
		}
		defer terminal.inside.Close()
		std = terminal.inside
		as.record.outputs, as.record.input = []*os.File{terminal.side}, terminal.input
		as.record.flags |= supervisor.Merged | supervisor.Input
		if cmd.Complete {
			as.record.flags |= supervisor.Complete
		}
	}
	for _, f := range std {
		// Allow the box's user to open /dev/stdout. The null device stays as it is, because it belongs to the whole
		// machine.
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			if err := f.Chown(int(c.who.hostUID), int(c.who.hostGID)); err != nil {
				return nil, err
			}
		}
	}
	if c.ownKernel {
		child, err := d.runtime.attach(ctx, c.id, c.describe(cmd), std)
		if err != nil {
			return nil, err
		}
		run := &attached{child, c, d.runtime}
		c.commands.begin(run)
		return run, nil
	}
	c.makeRoom(d.cgroups)
	run, err := c.supervise(ctx, d.cgroups, cmd, as, std)
	if err != nil {
		return nil, err
	}
	c.commands.begin(run)
	if !as.background {
		go c.guard(d.cgroups, run)
	}
	return run, nil
}

// notStarted reports why a command did not start: as a result where a shell would, otherwise as an error.
func notStarted(ctx context.Context, cmd sandbox.Command, err error, begin time.Time) (sandbox.Result, error) {
	result := sandbox.Result{Duration: time.Since(begin)}
	text := ""
	switch reasonOf(err) {
	case notExecutable:
		result.ExitCode, text = codeNotExecutable, "cannot be executed"
	case noProgram:
		result.ExitCode, text = codeNotFound, "command not found"
	case noDirectory:
		return result, fault.Newf(fault.Invalid, "create it first, or start in another directory", "the sandbox has no directory %q in which commands may start", cmd.Dir).Because(err)
	case tooLong:
		return result, fault.New(fault.Invalid, "the command's arguments or environment are too long", "pass them through a file or the standard input").Because(err)
	case noRoom:
		return result, fault.New(fault.Exhausted, "the sandbox has no room for another process: its memory or process limit is used up",
			"end something that runs in it, or raise the environment's limits").Because(err)
	default:
		return result, readable(ctx, err, "the command could not be started")
	}
	said := cmd.Stderr
	if cmd.Merged {
		said = cmd.Stdout
	}
	if said != nil {
		_, _ = fmt.Fprintf(said, "%s: %s\n", cmd.Argv[0], text) // in a shell's form
	}
	return result, nil
}
