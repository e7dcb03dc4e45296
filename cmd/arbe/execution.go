package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// exitNotRun is the exit code if arbe failed instead of the command. env, timeout and nohup use the same code.
	exitNotRun = 125
	// exitPipe is the exit code of a program that SIGPIPE ended: 128 + 13.
	exitPipe = 141
	// cancelTime limits how long arbe tries to cancel a command when it cannot write its own output and must exit.
	cancelTime = 10 * time.Second
)

// execution is one command from its request to its end.
type execution struct {
	app    *app
	client *arbe.Client
	req    *arbev1.RunCommandRequest
	stdin  io.Reader // nil for an empty stdin
	// separate means that arbe passes on every byte of stdout and stderr, separately. Otherwise output shows the live output.
	separate bool
	// tells means that stderr is a terminal. Only then does arbe add messages to the command's output; a program would
	// take them for output of the command. Two messages are always printed: arbe's own failures, and the hint that a whole
	// line was taken for the name of a program.
	tells  bool
	output output
	// wantedTerminal means that the person may have wanted to type input for the command.
	wantedTerminal bool
}

// say prints a message about the command.
func (e *execution) say(format string, args ...any) {
	if e.tells {
		e.app.say("arbe: "+format, args...)
	}
}

// missed reports that a part of the command's output is not shown.
func (e *execution) missed(bytes int64) { e.say("%d bytes are left out here", bytes) }

// run requests the command and passes on its output until it ends. The error is an [exitCode] unless arbe itself failed.
func (e *execution) run(ctx context.Context) error {
	var result string // the id of the result's entry
	notices := &connectionNotices{say: e.say}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opts := []arbe.RunOption{
		arbe.OnStart(func(started *arbev1.RunCommandResponse) {
			if result = started.GetResultId(); e.app.json {
				if err := e.printJSON(export.ViewEntry(started.GetEntry())); err != nil {
					stop(err) // a command without output gives no other chance to notice the error
				}
			}
		}),
		// Output from before the tail is shown with the first piece that the tail brings.
		arbe.OnEvent(func(event *arbev1.TailResponse) error {
			notices.heard()
			if d := event.GetDelta(); d.GetEntryId() == result && !e.separate {
				return e.show(d)
			} else if p, _ := export.Decode(event.GetEntry()); p != nil {
				e.notes(p)
			}
			return nil
		}),
		arbe.WithTail(notices.onLost()),
	}
	if e.separate {
		opts = append(opts, arbe.WithOutput(e.app.out, e.app.err))
	}
	if e.stdin != nil {
		opts = append(opts, arbe.WithStdin(e.stdin))
	}
	ended, err := e.client.Run(ctx, e.req, opts...)
	incomplete, _ := errors.AsType[*arbe.OutputError](err)
	_, unwritten := errors.AsType[*arbe.WriteError](err)
	if unwritten && !e.separate { // Run cancels the command only if one of Run's own writers fails
		e.cancelUnread(ctx)
	}
	switch {
	case unwritten:
		return e.unwritten(err)
	case ended == nil:
		return e.interrupted(ctx, "the command may still be running", err)
	case err != nil && incomplete == nil: // the person left before the rest of the output arrived
		return e.interrupted(ctx, "the command has ended, but part of its output is missing here", err)
	}
	err = e.end(ended.Entry)
	if _, unwritten := errors.AsType[*arbe.WriteError](err); unwritten {
		return e.unwritten(err)
	}
	if incomplete != nil {
		fmt.Fprintf(e.app.err, "arbe: the output is not complete: only its first %d bytes are here: %s\n", incomplete.Position, entry.Printable(e.app.explain(incomplete.Err).Error()))
		if ended.ArtifactID != "" {
			fmt.Fprintf(e.app.err, "arbe: what the log keeps of it: arbe artifact get %s\n", ended.ArtifactID)
		}
		return exitCode(exitNotRun)
	}
	return err
}

// cancel asks the server to cancel the command with a signal, and reports whether it was asked.
func (e *execution) cancel(ctx context.Context, with arbev1.Signal) bool {
	_, err := e.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: e.req.GetThreadId(), CommandId: e.req.GetId(), Signal: with})
	if err != nil && ctx.Err() == nil {
		e.say("the command cannot be cancelled: %s", entry.Printable(e.app.explain(err).Error()))
	}
	return err == nil
}

// cancelUnread cancels a command whose output nobody can read.
func (e *execution) cancelUnread(ctx context.Context) {
	// ctx must not cancel this call, because the failed write may have ended it.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	_, _ = e.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: e.req.GetThreadId(), CommandId: e.req.GetId()})
}

// printJSON prints a view. It fails if the output cannot be written.
func (e *execution) printJSON(view any) error {
	if err := e.app.printJSON(view); err != nil {
		return &arbe.WriteError{Err: err}
	}
	return nil
}

// unwritten returns the exit code for output that cannot be written. It is never the command's own exit code, because a
// program would take its part of the output for the whole output.
func (e *execution) unwritten(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return exitCode(exitPipe)
	}
	e.app.report(e.app.explain(err), e.app.json)
	return exitCode(exitNotRun)
}

// interrupted explains the error if the person has left, and adds what is known about the command. It returns other
// errors unchanged.
func (e *execution) interrupted(ctx context.Context, known string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	e.say("%s, see: arbe thread entries list %s --tail 5", known, e.req.GetThreadId())
	return exitCode(exitInterrupted)
}

// show prints a piece of live output. It fails if the output cannot be written.
func (e *execution) show(d *arbev1.Delta) error {
	if !e.app.json {
		if err := e.output.delta(d); err != nil {
			return &arbe.WriteError{Err: err}
		}
		return nil
	}
	view := deltaView{EntryID: d.GetEntryId(), Offset: d.GetOffset()}
	if utf8.Valid(d.GetData()) {
		view.Data = string(d.GetData())
	} else {
		view.DataBase64 = d.GetData()
	}
	return e.printJSON(view)
}

// notes tells the person what the command waits for, or which host it was not allowed to reach, if p is about that.
func (e *execution) notes(p entry.Payload) {
	if e.app.json {
		return
	}
	switch p := p.(type) {
	case entry.CommandWaiting:
		if p.CommandID == e.req.GetId() {
			e.say("%s", p.Plain())
		}
	case entry.HostRefused:
		if p.CommandID == e.req.GetId() {
			e.say("%s", entry.Printable(p.Plain()))
		}
	}
}

// end prints the output that was not shown live, and returns the command's exit code, or a [*arbe.WriteError].
func (e *execution) end(result *arbev1.Entry) error {
	payload, _ := export.Decode(result)
	r, ok := payload.(entry.CommandResult)
	if !ok {
		return fault.New(fault.Internal, "this version of arbe does not know the kind of entry in which the server reports how the command ended", "update this arbe to the server's version")
	}
	switch {
	case e.app.json:
		if err := e.printJSON(export.ViewEntry(result)); err != nil {
			return err
		}
	case !e.separate:
		if err := e.output.rest(r); err != nil {
			return &arbe.WriteError{Err: err}
		}
	}
	if e.output.gaps && r.ArtifactID != "" {
		what := "all of it"
		if r.ArtifactPart {
			what = fmt.Sprintf("its first %d bytes", r.ArtifactBytes)
		}
		e.say("%s: arbe artifact get %s", what, r.ArtifactID)
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(e.app.err, "arbe: %s\n", entry.Printable(r.Error))
		return exitCode(exitNotRun)
	case r.Cancelled:
		e.say("%s", r.Outcome())
		return exitCode(exitInterrupted)
	case r.TimedOut, r.OutOfMemory:
		e.say("%s", r.Outcome())
	}
	if r.ExitCode < 0 { // unknown
		return exitCode(exitNotRun)
	}
	const noProgram = 127
	if argv := e.req.GetArgv().GetArgs(); r.ExitCode == noProgram && len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n") {
		// Even into a pipe: nothing has run, and the sandbox's message ("command not found") does not say why.
		e.app.say("arbe: all of %q was taken as the name of a program; to run a shell command line, use -c", entry.Printable(argv[0]))
	}
	if e.wantedTerminal && r.ExitCode == 0 && r.OutputBytes == 0 && r.DurationMS < 2000 && asksForTerminal(argv0(e.req)) {
		e.say("its stdin was empty; arbe x -it gives it this terminal")
	}
	return exitCode(r.ExitCode)
}

// argv0 returns the program of a request without arguments, and "" for any other request.
func argv0(req *arbev1.RunCommandRequest) string {
	if argv := req.GetArgv().GetArgs(); len(argv) == 1 {
		return path.Base(argv[0])
	}
	return strings.TrimSpace(req.GetCommand())
}

// asksForTerminal reports whether a program reads a person's commands on a terminal, but exits on an empty input.
func asksForTerminal(program string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "fish", "ash", "python", "python3", "node", "irb", "psql", "sqlite3", "bc", "cat"}, program)
}

// runDetached runs a command without waiting for it.
func (a *app) runDetached(ctx context.Context, c *arbe.Client, req *arbev1.RunCommandRequest) error {
	started, err := c.Threads.RunCommand(ctx, req)
	if err != nil {
		return err
	}
	id := started.GetEntry().GetId()
	return a.show(id, export.ViewEntry(started.GetEntry()), func() string { return id })
}
