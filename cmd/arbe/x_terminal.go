package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// errLeftTerminal reports that the person left the terminal, while the command runs on.
var errLeftTerminal = errors.New("the terminal was left")

// runTerminal runs a command with this terminal.
func (a *app) runTerminal(ctx context.Context, c *arbe.Client, req *arbev1.RunCommandRequest, keep, detach bool) error {
	if detach {
		req.Terminal = &arbev1.Terminal{Size: &arbev1.TerminalSize{Rows: 24, Columns: 80}, Keep: true}
		return a.runDetached(ctx, c, req)
	}
	return a.withTerminal(ctx, keep, req.GetThreadId(), req.GetId(), func(ctx context.Context, t arbe.Terminal, opts ...arbe.RunOption) (*arbe.Result, error) {
		t.Keep = keep
		return c.Run(ctx, req, append(opts, arbe.WithTerminal(t))...)
	})
}

// withTerminal calls run with this terminal in raw mode, and always restores it. command is the id of the command's entry.
func (a *app) withTerminal(ctx context.Context, keep bool, thread, command string, run func(context.Context, arbe.Terminal, ...arbe.RunOption) (*arbe.Result, error)) error {
	in, isFile := a.in.(*os.File)
	if !isFile || !isTerminal(in) || !isTerminal(a.out) {
		return fault.New(fault.Invalid, "-it needs a terminal, but stdin or stdout is not one", "leave out -it, and pipe the command's input and output")
	}
	if a.json {
		return fault.New(fault.Invalid, "a command on a terminal has no JSON output", "leave out --json or -it")
	}
	fd := int(in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("the terminal cannot be used: %w", err)
	}
	restore := sync.OnceFunc(func() { _ = term.Restore(fd, before) }) // an error means that the terminal is gone
	defer restore()

	ctx, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	ending, giveBack := a.signals.takeOver()
	defer giveBack()
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGHUP)
	defer signal.Stop(gone)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	sizes := make(chan *arbev1.TerminalSize, 1)
	go func() {
		for {
			select {
			case <-ending:
				leave(errLeftTerminal)
			case <-gone:
				leave(errLeftTerminal)
			case <-resized:
				select {
				case <-sizes: // an older size that was not sent
				default:
				}
				sizes <- sizeOf(fd) // there is room: only this goroutine sends
			case <-ctx.Done():
				return
			}
		}
	}()
	show := func(format string, args ...any) {
		fmt.Fprintf(a.err, "\r\narbe: "+format+"\r\n", args...)
	}
	notices := &connectionNotices{say: show}
	t := arbe.Terminal{
		In: &escapable{in: in, leave: func() { leave(errLeftTerminal) }, atStart: true}, Out: a.out,
		Size: sizeOf(fd), Resized: sizes, Kind: a.getenv("TERM"),
	}
	result, err := run(ctx, t, arbe.OnEvent(func(event *arbev1.TailResponse) error {
		notices.heard()
		if waiting, ok := eventPayload[entry.CommandWaiting](event); ok && waiting.CommandID == command {
			show("%s", waiting.Plain())
		}
		return nil
	}), arbe.WithTail(notices.onLost()))
	restore()
	return a.endTerminal(ctx, keep, thread, command, result, err)
}

// endTerminal tells the person how the command of a closed terminal continues, and returns the exit code.
func (a *app) endTerminal(ctx context.Context, keep bool, thread, command string, result *arbe.Result, err error) error {
	if context.Cause(ctx) == errLeftTerminal && result == nil {
		if keep {
			a.say("\narbe: the command runs on; return to it with: arbe attach -t %s %s", thread, command)
		} else {
			a.say("\narbe: the command ends in a minute, unless: arbe attach -t %s %s", thread, command)
		}
		return exitCode(exitInterrupted)
	}
	if lost, ok := errors.AsType[*arbe.OutputError](err); ok && result == nil {
		return fault.New(fault.Precondition, "another terminal is connected to the command now, or its output was not read for too long",
			fmt.Sprintf("return to it with: arbe attach -t %s %s", thread, command)).Because(lost)
	}
	if result == nil {
		return err
	}
	if result.Error != "" {
		fmt.Fprintf(a.err, "arbe: %s\n", entry.Printable(result.Error))
	}
	if result.ExitCode < 0 {
		return exitCode(exitNotRun)
	}
	return exitCode(result.ExitCode)
}

// eventPayload returns the payload of an event's entry, if it is of a kind.
func eventPayload[P entry.Payload](event *arbev1.TailResponse) (p P, ok bool) {
	payload, _ := export.Decode(event.GetEntry())
	p, ok = payload.(P)
	return p, ok
}

// sizeOf returns the size of a terminal.
func sizeOf(fd int) *arbev1.TerminalSize {
	columns, rows, err := term.GetSize(fd)
	if err != nil || rows < 1 || columns < 1 {
		rows, columns = 24, 80
	}
	return &arbev1.TerminalSize{Rows: uint32(min(rows, 10_000)), Columns: uint32(min(columns, 10_000))}
}

// escapable reads the person's keys. As in ssh, it calls leave for ~. at the start of a line, and turns ~~ there into ~.
type escapable struct {
	in      io.Reader
	leave   func()
	atStart bool // of a line
	tilde   bool // ~ was typed there and is held back
}

func (e *escapable) Read(p []byte) (int, error) {
	typed := make([]byte, len(p)/2) // each byte becomes at most two
	for {
		n, err := e.in.Read(typed)
		var out bytes.Buffer
		for _, b := range typed[:n] {
			switch {
			case e.tilde && b == '.':
				e.leave()
				return copy(p, out.Bytes()), io.EOF
			case e.tilde && b != '~':
				out.WriteByte('~')
			}
			if !e.tilde && e.atStart && b == '~' {
				e.tilde = true
				continue
			}
			e.tilde, e.atStart = false, b == '\r' || b == '\n'
			out.WriteByte(b)
		}
		if out.Len() > 0 || err != nil {
			return copy(p, out.Bytes()), err
		}
	}
}
