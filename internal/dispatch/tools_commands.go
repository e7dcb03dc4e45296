package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file has the tools that run commands. A command is a durable entry that outlives the call which started it: when the
// call returns, the command continues in the background until its own time limit, even after the turn has answered. Stopping
// the turn also stops its commands.

const (
	// foreground limits how long a call waits for the end of a command.
	foreground = 2 * time.Minute
	// mostWaited limits the wait of [entry.ReadCommandTool], and stopWaited that of [entry.StopCommandTool].
	mostWaited, stopWaited = 2 * time.Minute, 3 * entry.CancelGrace
	// cancelWithin limits the cancellation of a command whose turn has ended.
	cancelWithin = 20 * time.Second
)

// commandTools returns the tools that run commands in the thread's sandbox.
func (d *Dispatcher) commandTools() []turn.Tool {
	return []turn.Tool{
		d.inSandbox(resultTool(entry.RunCommandTool, `Runs a shell command in this thread's sandbox and returns its output and exit code. The sandbox keeps its files
between commands. Everyone in the thread sees the command and its output. After two minutes the call returns what there is, and the command goes on in the background.`,
			`{"type":"object","properties":{
			"command":{"type":"string","description":"a line for /bin/sh","minLength":1},
			"background":{"type":"boolean","description":"returns at once, for a server or a long job; read_command shows what it prints, stop_command ends it"},
			"timeout_seconds":{"type":"integer","minimum":1,"maximum":86400,"description":"how long it may run; leave it out for the sandbox's limit"}},
			"required":["command"],"additionalProperties":false}`, d.runForBot)),
		acts(runsAsBot, resultTool(entry.ReadCommandTool, `Reads the output of a command of this thread, and says whether it is still running, or how it ended.`,
			`{"type":"object","properties":{
			"command_id":{"type":"string","minLength":1,"maxLength":200},
			"offset":{"type":"integer","minimum":0,"description":"reads from this byte of the output; leave it out for the end of it"},
			"wait_seconds":{"type":"integer","minimum":0,"maximum":120,"description":"how long to wait for the end of the command"}},
			"required":["command_id"],"additionalProperties":false}`, d.readCommandForBot)),
		acts(runsAsBot, resultTool(entry.StopCommandTool, `Stops a command of this thread that you ran, with everything that it started.`,
			`{"type":"object","properties":{
			"command_id":{"type":"string","minLength":1,"maxLength":200}},"required":["command_id"],"additionalProperties":false}`, d.stopCommandForBot)),
	}
}

type commandArguments struct {
	Command    string `json:"command"`
	Background bool   `json:"background"`
	Timeout    int64  `json:"timeout_seconds"`
}

// runForBot runs a command and waits a limited time for its result. If the call is repeated, it waits for the first call's
// command. If ctx ends because someone stopped the turn, or because the turn's time is up, it also cancels the command.
func (d *Dispatcher) runForBot(ctx context.Context, c turn.Call, a commandArguments) (turn.Result, error) {
	id := entry.CallCommandID(c.ID)
	said, err := d.Commands.RunForCall(ctx, c.Scope, c.Thread, c.ID, entry.Command{Command: a.Command, TimeoutMS: a.Timeout * 1000})
	if err != nil {
		return turn.Result{}, err
	}
	if a.Background {
		return turn.Result{Text: "it is running in the background as the command " + id + "; read_command shows its output"}, nil
	}
	wait := min(time.Until(said.Time.Add(d.config.foreground)), d.config.foreground)
	r, err := d.awaitEnd(ctx, c, said, wait)
	if err == nil && r == nil {
		return d.unended(ctx, c, said.ID, -1)
	}
	if err != nil {
		if jobs.Cancelled(ctx) || errors.Is(context.Cause(ctx), turn.ErrTimeUp) {
			lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
			defer cancel()
			if err := d.Commands.Cancel(lasting, c.Scope, c.Thread, id, command.Interrupt); err != nil {
				d.logger.WarnContext(ctx, "cannot cancel the command of a bot that was stopped", "error", fault.From(err).Detail())
			}
		}
		return turn.Result{}, err
	}
	return turn.Result{Text: r.Within(command.PeekMost), Failed: r.Failed()}, nil
}

// awaitEnd waits at most the given time for a command to end. It returns nil if it has not.
func (d *Dispatcher) awaitEnd(ctx context.Context, c turn.Call, asked entry.Entry, most time.Duration) (*entry.CommandResult, error) {
	log := stream.Ref{House: c.Scope.House, Name: thread.StreamName(c.Thread)}
	if most > 0 {
		bounded, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		r, err := d.awaitResult(bounded, log, asked)
		if err == nil {
			return &r, nil
		} else if bounded.Err() == nil || ctx.Err() != nil {
			return nil, err
		}
	}
	said, err := d.log.Get(ctx, log, entry.ResultID(asked.ID))
	if fault.CodeOf(err) == fault.NotFound {
		return nil, nil
	}
	r, _ := entry.As[entry.CommandResult](said)
	return &r, err
}

// unended returns the output so far of a command that has not ended.
func (d *Dispatcher) unended(ctx context.Context, c turn.Call, id string, from int64) (turn.Result, error) {
	seen, err := d.Commands.Peek(ctx, c.Scope, c.Thread, id, from)
	return turn.Result{Text: shown(seen) + fmt.Sprintf("[it is still running, as the command %s; read_command with offset %d shows its further output]", id, seen.Next)}, err
}

// shown returns a part of an output as bots read it, with notes about the parts left out.
func shown(s command.Seen) string {
	text := s.Text
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if s.At > 0 && text != "" {
		text = fmt.Sprintf("[from byte %d of %d]\n", s.At, s.Total) + text
	}
	return text
}

type readCommandArguments struct {
	Command string `json:"command_id"`
	Offset  *int64 `json:"offset"`
	Wait    int64  `json:"wait_seconds"`
}

func (d *Dispatcher) readCommandForBot(ctx context.Context, c turn.Call, a readCommandArguments) (turn.Result, error) {
	said, err := d.commandOf(ctx, c, a.Command)
	if err != nil {
		return turn.Result{}, err
	}
	ended, err := d.awaitEnd(ctx, c, said, min(time.Duration(a.Wait)*time.Second, mostWaited))
	if err != nil {
		return turn.Result{}, err
	}
	from := int64(-1)
	if a.Offset != nil {
		from = *a.Offset
	}
	switch {
	case ended == nil:
		return d.unended(ctx, c, a.Command, from)
	case from < 0:
		return turn.Result{Text: ended.Within(command.PeekMost), Failed: ended.Failed()}, nil
	}
	seen := command.SeenIn(*ended, from)
	text := shown(seen)
	if seen.Next < seen.Total {
		text += fmt.Sprintf("[there is more, from offset %d of %d]\n", seen.Next, seen.Total)
	}
	return turn.Result{Text: text + "[" + ended.Outcome() + "]", Failed: ended.Failed()}, nil
}

// commandOf returns a command of a call's own thread.
func (d *Dispatcher) commandOf(ctx context.Context, c turn.Call, id string) (entry.Entry, error) {
	said, err := d.log.Get(ctx, stream.Ref{House: c.Scope.House, Name: thread.StreamName(c.Thread)}, id)
	if err == nil && said.Type != (entry.Command{}).Type() || fault.CodeOf(err) == fault.NotFound {
		err = fault.New(fault.NotFound, "this thread has no such command", "give the id that run_command returned")
	}
	return said, err
}

type stopCommandArguments struct {
	Command string `json:"command_id"`
}

func (d *Dispatcher) stopCommandForBot(ctx context.Context, c turn.Call, a stopCommandArguments) (turn.Result, error) {
	said, err := d.commandOf(ctx, c, a.Command)
	if err != nil {
		return turn.Result{}, err
	}
	if said.Author != c.Scope.Agent {
		return turn.Result{}, fault.New(fault.Forbidden, "somebody else ran this command", "ask them to stop it")
	}
	if err := d.Commands.Cancel(ctx, c.Scope, c.Thread, a.Command, command.Interrupt); err != nil {
		return turn.Result{}, err
	}
	ended, err := d.awaitEnd(ctx, c, said, stopWaited)
	switch {
	case err != nil:
		return turn.Result{}, err
	case ended == nil:
		return turn.Result{Text: "it was asked to stop, but has not ended yet"}, nil
	}
	return turn.Result{Text: ended.Within(command.PeekMost)}, nil
}

// awaitResult waits until a command has ended.
func (d *Dispatcher) awaitResult(ctx context.Context, log stream.Ref, command entry.Entry) (entry.CommandResult, error) {
	for event, err := range d.log.Tail(ctx, log, command.Seq) {
		if err != nil {
			return entry.CommandResult{}, err
		}
		if event.Entry == nil || event.Entry.ID != entry.ResultID(command.ID) {
			continue
		}
		if r, ok := entry.As[entry.CommandResult](*event.Entry); ok {
			return r, nil
		}
	}
	if ctx.Err() != nil {
		return entry.CommandResult{}, ctx.Err()
	}
	return entry.CommandResult{}, fault.New(fault.Unavailable, "the thread's log ended before the command did", "try again")
}
