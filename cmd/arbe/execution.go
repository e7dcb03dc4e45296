package main

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// exitNotRun is what a shell's wrappers (env, timeout, nohup) exit with when they failed themselves.
const exitNotRun = 125

// execution is one command on its way: asked for, printing, ended.
type execution struct {
	app    *app
	client *arbe.Client
	req    *arbev1.RunCommandRequest
	output output
}

// run asks for the command and prints what it prints until it ends. The error is an [exitCode] unless
// arbe itself failed.
func (e *execution) run(ctx context.Context) error {
	log, err := e.client.Entries.List(ctx, &arbev1.ListRequest{ThreadId: e.req.GetThreadId(), Last: true, Limit: 1})
	if err != nil {
		return err
	}
	// The tail comes first, so that not even the command's first byte is missed.
	next, stop := iter.Pull2(e.app.follow(ctx, e.client, e.req.GetThreadId(), log.GetTail()))
	defer stop()
	if err := reachEnd(next); err != nil {
		return err
	}
	started, err := e.client.Threads.RunCommand(ctx, e.req)
	if err != nil {
		return e.interrupted(ctx, err)
	}
	if e.app.json {
		if err := e.app.printJSON(viewEntry(started.GetEntry())); err != nil {
			return err
		}
	}
	for {
		event, err, _ := next()
		if err != nil {
			return e.interrupted(ctx, err)
		}
		if d := event.GetDelta(); d.GetEntryId() == started.GetResultId() {
			if err := e.show(d); err != nil {
				return err
			}
		}
		if r := event.GetEntry(); r.GetId() == started.GetResultId() {
			return e.end(r)
		}
	}
}

// reachEnd follows a tail until it has shown all that was there.
func reachEnd(next func() (*arbev1.TailResponse, error, bool)) error {
	for {
		event, err, _ := next()
		if err != nil || event.GetCaughtUp() != nil {
			return err
		}
	}
}

// cancel asks the server to stop the command, and says whether it was asked.
func (e *execution) cancel(ctx context.Context) bool {
	e.app.say("stopping the command; Ctrl-C again to leave at once")
	_, err := e.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: e.req.GetThreadId(), CommandId: e.req.GetId()})
	return err == nil
}

// interrupted explains an error that came because the person left.
func (e *execution) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	e.app.say("left; the command may still run, see: arbe thread entries list %s --tail 5", e.req.GetThreadId())
	return exitCode(exitInterrupted)
}

// show prints a piece of live output.
func (e *execution) show(d *arbev1.Delta) error {
	if !e.app.json {
		return e.output.delta(d)
	}
	view := deltaView{EntryID: d.GetEntryId(), Offset: d.GetOffset()}
	if utf8.Valid(d.GetData()) {
		view.Data = string(d.GetData())
	} else {
		view.DataBase64 = d.GetData()
	}
	return e.app.printJSON(view)
}

// end prints what the live output left out, and makes the command's exit code ours.
func (e *execution) end(result *arbev1.Entry) error {
	payload, _ := decode(result)
	r, ok := payload.(entry.CommandResult)
	if !ok {
		return fault.New(fault.Internal, "the server told the end of the command in words this arbe does not know", "update this arbe to the server's version")
	}
	if e.app.json {
		if err := e.app.printJSON(viewEntry(result)); err != nil {
			return err
		}
	} else if err := e.output.rest(r); err != nil {
		return err
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(e.app.err, "arbe: %s\n", printable(r.Error))
		return exitCode(exitNotRun)
	case r.Cancelled:
		e.app.say("arbe: %s", r.Verdict())
		return exitCode(exitInterrupted)
	case r.TimedOut, r.OutOfMemory:
		e.app.say("arbe: %s", r.Verdict())
	}
	if r.ExitCode < 0 { // nobody knows
		return exitCode(exitNotRun)
	}
	return exitCode(r.ExitCode)
}
