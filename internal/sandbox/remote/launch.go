package remote

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// mostFollowed limits the output in one answer, in bytes.
const mostFollowed = 2 << 20

// validLaunch matches a command's id, which is also a file name.
var validLaunch = lazyregexp.New(`^[a-z0-9-]{1,64}$`)

func checkLaunch(id string) error {
	if !validLaunch.MatchString(id) {
		return fault.Newf(fault.Invalid, "use a-z, 0-9 and -, at most 64 characters", "%q is not a command's id", id)
	}
	return nil
}

// check refuses arguments that a program cannot be given unchanged: an argument ends at NUL, and requests are UTF-8.
func check(cmd sandbox.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fault.New(fault.Invalid, "the command is empty", "name a program to run")
	}
	if cmd.Merged && cmd.Stderr != nil {
		return fault.New(fault.Invalid, "a command with merged outputs has no separate standard error", "leave Stderr out")
	}
	if err := checkSecrets(cmd.Secrets); err != nil {
		return err
	}
	if cmd.Terminal != nil && (!cmd.Input || !cmd.Merged) {
		return fault.New(fault.Invalid, "a command with a terminal has one output, and an input", "set Input and Merged")
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

// Launches reports that commands can be launched.
func (d *Driver) Launches() bool { return true }

// Launch starts a command that outlives this server.
func (d *Driver) Launch(ctx context.Context, ref, id string, cmd sandbox.Command) error {
	if err := cmp.Or(checkLaunch(id), check(cmd)); err != nil {
		return err
	}
	if cmd.Stdin != nil || cmd.Stdout != nil || cmd.Stderr != nil || cmd.Timeout != 0 {
		return fault.New(fault.Invalid, "a launched command has no input, output or time limit of its own", "leave them out, or redirect inside the command")
	}
	_, err := d.start(ctx, ref, launchRequest(id, cmd), cmd.Secrets)
	return err
}

// launchRequest asks for a command.
func launchRequest(id string, cmd sandbox.Command) protocol.Request {
	r := protocol.Request{
		Op: protocol.Launch, ID: id, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir,
		Merged: cmd.Merged, Complete: cmd.Complete, Input: cmd.Input,
	}
	if cmd.Terminal != nil {
		addTerminal(&r, *cmd.Terminal)
	}
	return r
}

// start launches a command.
func (d *Driver) start(ctx context.Context, ref string, r protocol.Request, secrets map[string]string) (protocol.Reply, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Reply{}, fault.From(err)
	}
	if r.Secret = len(secrets) > 0; r.Secret {
		if err := d.placeSecrets(ctx, ref, r.ID, secrets); err != nil {
			return protocol.Reply{}, err
		}
	}
	if r.Input && r.Terminal == nil {
		d.mu.Lock()
		d.inputs[launchKey{ref, r.ID}] = true
		d.mu.Unlock()
	}
	reply, err := d.call(ctx, ref, r)
	for attempt := 1; err == nil && reply.Reason == protocol.SecretsLost && attempt < interrupted; attempt++ {
		if err = d.placeSecrets(ctx, ref, r.ID, secrets); err == nil {
			reply, err = d.call(ctx, ref, r)
		}
	}
	if err == nil {
		if err = explain(reply, r); err != nil && len(secrets) > 0 {
			d.forgetNow(ref, r.ID) // so the files go at once
		}
	}
	if err != nil {
		d.dropInput(ref, r.ID)
	}
	return reply, err
}

func (d *Driver) dropInput(ref, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inputs, launchKey{ref, id})
}

// explain returns why a request failed; nil if it did not.
func explain(reply protocol.Reply, r protocol.Request) error {
	var err *fault.Error
	switch reply.Reason {
	case "":
		return nil
	case protocol.NoDirectory:
		err = fault.Newf(fault.Invalid, "create it first, or start in another directory", "the sandbox has no directory %q in which commands may start", r.Dir)
	case protocol.TooLong:
		err = fault.New(fault.Invalid, "the command's arguments or environment are too long", "pass them through a file or the standard input")
	case protocol.NoRoom:
		err = fault.New(fault.Exhausted, "the sandbox has no room for another process: its memory or process limit is used up",
			"end a process in it, or raise the environment's limits")
	case protocol.Unknown:
		err = fault.New(fault.NotFound, "the command "+r.ID+" was not launched in this sandbox, or was forgotten", "launch it")
	case protocol.NoInput:
		err = inputGone()
	case protocol.NoTerminal:
		err = noTerminal(r)
	case protocol.NoSecrets:
		err = noSecrets()
	case protocol.SecretsLost:
		err = fault.New(fault.Unavailable, "the sandbox loses the files of secrets before the command starts", "run the command again")
	default:
		return fileError(reply, r)
	}
	if reply.Detail == "" {
		return err
	}
	return err.Because(errors.New(reply.Detail))
}

func inputGone() *fault.Error {
	return fault.New(fault.Precondition, "the command's input is not open: it has ended, it has none, or it belongs to an earlier server", "run it again")
}

func (d *Driver) Release(ctx context.Context, ref, id string, position int64) error {
	return d.tell(ctx, ref, protocol.Request{Op: protocol.Release, ID: id, Position: position})
}

// Extend raises the limit of a command's record.
func (d *Driver) Extend(ctx context.Context, ref, id string, size int64) error {
	return d.tell(ctx, ref, protocol.Request{Op: protocol.Extend, ID: id, Position: size})
}

// Interrupt sends SIGINT to a command.
func (d *Driver) Interrupt(ctx context.Context, ref, id string) error {
	return d.tell(ctx, ref, protocol.Request{Op: protocol.Interrupt, ID: id})
}

// Forget deletes the record of a command.
func (d *Driver) Forget(ctx context.Context, ref, id string) error {
	d.dropInput(ref, id)
	return d.tell(ctx, ref, protocol.Request{Op: protocol.Forget, ID: id})
}

// tell sends a request about a command.
func (d *Driver) tell(ctx context.Context, ref string, r protocol.Request) error {
	if err := checkLaunch(r.ID); err != nil {
		return err
	}
	reply, err := d.call(ctx, ref, r)
	if err != nil {
		return err
	}
	return explain(reply, r)
}

// End ends a command.
func (d *Driver) End(ctx context.Context, ref, id string, patience time.Duration) error {
	r := protocol.Request{Op: protocol.End, ID: id, Patience: patience, Wait: longestWait}
	if err := checkLaunch(id); err != nil {
		return err
	}
	for {
		reply, err := d.call(ctx, ref, r)
		if err != nil {
			return err
		}
		if !reply.Pending {
			return explain(reply, r)
		}
	}
}

// Follow delivers the record of a command.
func (d *Driver) Follow(ctx context.Context, ref, id string, from int64, to func(sandbox.Record) error) error {
	if err := checkLaunch(id); err != nil {
		return err
	}
	_, err := d.follow(ctx, ref, protocol.Request{Op: protocol.Follow, ID: id, Position: from, Most: mostFollowed, Wait: longestWait}, to)
	return err
}

// follow repeats Follow requests until the command has ended, and returns how it ended.
func (d *Driver) follow(ctx context.Context, ref string, r protocol.Request, to func(sandbox.Record) error) (sandbox.Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return sandbox.Record{}, fault.From(err)
		}
		reply, err := d.call(ctx, ref, r)
		if err == nil {
			err = explain(reply, r)
		}
		if err != nil {
			return sandbox.Record{}, err
		}
		last, err := deliver(reply, &r.Position, to)
		if err != nil || last.Kind == sandbox.RecordExit {
			return last, err
		}
	}
}

// deliver delivers the records of a reply, advances the position past them, and returns the last one. The reply comes from
// the box, so nothing in it is trusted.
func deliver(reply protocol.Reply, position *int64, to func(sandbox.Record) error) (last sandbox.Record, err error) {
	data := reply.Data
	for _, record := range reply.Records {
		size := max(0, min(record.Size, len(data)))
		last = sandbox.Record{
			Next: record.Next, Time: time.Unix(0, record.Nanoseconds), Kind: sandbox.RecordKind(record.Kind), Data: data[:size:size],
			ExitCode: record.ExitCode, OutOfMemory: record.OutOfMemory, BoxEnded: record.BoxEnded, Dropped: record.Dropped,
		}
		data = data[size:]
		switch last.Kind {
		case sandbox.RecordStart, sandbox.RecordStdout, sandbox.RecordStderr, sandbox.RecordGap, sandbox.RecordExit:
		default:
			continue
		}
		if *position = max(*position, last.Next); size == 0 {
			last.Data = nil
		}
		if err := to(last); err != nil || last.Kind == sandbox.RecordExit {
			return last, err
		}
	}
	return last, nil
}
