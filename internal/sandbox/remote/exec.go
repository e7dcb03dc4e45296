package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// codeTimedOut is the exit code of a command that exceeded its time limit.
const codeTimedOut = 124

// endPatience limits the wait for an abandoned command to end.
const endPatience = 2 * time.Minute

// Exec runs a command: it launches the command, follows it and forgets it. A short command takes one request.
//
// A goroutine reads cmd.Stdin. It ends when Stdin returns after the command has ended. Exec does not wait for it, because a
// Read of Stdin cannot be cancelled.
func (d *Driver) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	if err := check(cmd); err != nil {
		return sandbox.Result{}, err
	}
	if cmd.Terminal != nil {
		return sandbox.Result{}, fault.New(fault.Invalid, "a command with a terminal must be launched", "launch it")
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, fault.From(err)
	}
	begin := time.Now()
	limited, cancel := ctx, func() {}
	if cmd.Timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, cmd.Timeout)
	}
	defer cancel()
	run := &execution{d: d, ref: ref, cmd: cmd, id: "x-" + strings.ToLower(rand.Text())}
	end, err := run.do(limited)
	result := sandbox.Result{ExitCode: end.ExitCode, OutOfMemory: end.OutOfMemory}
	if ended := limited.Err() != nil; run.started || ended { // it may be running although no answer says so
		_, neverSent := errors.AsType[unsentError](err)
		switch {
		case ended && neverSent && !run.started:
			// Nothing runs, and a box that cannot be reached would be asked to end it for endPatience.
		case ended:
			run.stop(context.WithoutCancel(ctx))
		case fault.CodeOf(err) == fault.NotFound: // the box disappeared while the command ran
			result, err = sandbox.Result{ExitCode: 137}, nil
		}
		if result.ExitCode != 137 || err == nil {
			d.forgetLater(ref, run.id)
		}
	}
	result.Duration = time.Since(begin)
	switch {
	case ctx.Err() != nil:
		return sandbox.Result{Duration: result.Duration}, fault.From(ctx.Err())
	case limited.Err() != nil:
		return sandbox.Result{ExitCode: codeTimedOut, TimedOut: true, OutOfMemory: result.OutOfMemory, Duration: result.Duration}, nil
	}
	return result, err
}

// execution is one Exec.
type execution struct {
	d        *Driver
	ref, id  string
	cmd      sandbox.Command
	started  bool
	position int64
}

// do runs the command to its end.
func (e *execution) do(ctx context.Context) (end sandbox.Record, err error) {
	r := launchRequest(e.id, e.cmd)
	r.Complete, r.Input = true, e.cmd.Stdin != nil
	if r.Input { // it is sent in the meantime
		r.Wait = 0
	} else {
		r.Wait, r.Most = longestWait, mostFollowed
	}
	reply, err := e.d.start(ctx, e.ref, r, e.cmd.Secrets)
	if err != nil {
		return end, err
	}
	e.started = true
	if r.Input {
		inputs, stop := context.WithCancel(ctx)
		defer stop()
		go e.feed(inputs)
	}
	if end, err = deliver(reply, &e.position, e.write); err != nil || end.Kind == sandbox.RecordExit {
		return end, err
	}
	return e.follow(ctx)
}

func (e *execution) follow(ctx context.Context) (sandbox.Record, error) {
	return e.d.follow(ctx, e.ref, protocol.Request{
		Op: protocol.Follow, ID: e.id, Position: e.position, Release: true, Most: mostFollowed, Wait: longestWait,
	}, e.write)
}

// feed sends the input. The command may not read it.
func (e *execution) feed(ctx context.Context) {
	in := &input{d: e.d, ref: e.ref, id: e.id}
	buffer := make([]byte, MaxInput/4)
	for {
		n, err := e.cmd.Stdin.Read(buffer)
		for sent := 0; sent < n; {
			before := in.at
			if in.send(ctx, buffer[sent:n], false) != nil {
				return
			}
			sent += int(in.at - before)
		}
		if err != nil && err != io.EOF {
			return // do not close the input: the command has not received all of it
		}
		if err == io.EOF {
			_ = in.Close() // fails if the command has ended
			return
		}
	}
}

// write forwards output.
func (e *execution) write(r sandbox.Record) error {
	e.position = max(e.position, r.Next)
	to := &e.cmd.Stdout
	if r.Kind == sandbox.RecordStderr {
		to = &e.cmd.Stderr
	}
	if *to != nil && len(r.Data) > 0 {
		if _, err := (*to).Write(r.Data); err != nil {
			*to = nil
		}
	}
	return nil
}

// stop ends the command and delivers its output up to then.
func (e *execution) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	if e.d.End(ctx, e.ref, e.id, 0) == nil {
		_, _ = e.follow(ctx) // the caller gets its own error
	}
}
