package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/terminal"
	"github.com/arbe-dev/arbe/web/transcript"
)

// A tty joins a command with another terminal size than its own, which it sets after redrawAfter. The change makes programs
// redraw their screen, which the tty has not seen. If nothing is drawn, the tty tries again with twice the pause, until the
// pause exceeds redrawMost.
const redrawAfter, redrawMost = 200 * time.Millisecond, 10 * time.Second

// openTTY returns a tty that has begun to read the output of a command.
func (a *app) openTTY(ctx context.Context, key ttyKey, command *arbev1.Entry, rows, columns int) *tty {
	t := &tty{
		id: newID(), key: key, screen: terminal.New(rows, columns), changed: make(chan struct{}),
		sizes: make(chan *arbev1.TerminalSize, 1), replies: make(chan []byte, 16),
	}
	t.ctx, t.stop = context.WithCancel(withSession(context.WithoutCancel(ctx), key.session))
	t.show = func(f func()) { a.careful(t, f) }
	t.unused = time.AfterFunc(ttyLasts, t.stop)
	guard.Background(func() error { a.runTTY(t, command); return nil })
	guard.Background(func() error { a.sendReplies(t); return nil })
	return t
}

// careful runs a function that changes the screen of a tty, whose lock the caller holds. If it panics, the tty goes on with an
// empty screen, because the panic of a goroutine that no page waits for would end the process.
func (a *app) careful(t *tty, f func()) {
	if err := guard.Run(func() error { f(); return nil }); err != nil {
		a.log.Log(t.ctx, slog.LevelError, "web: a terminal cannot show its output", "thread", t.key.thread, "command", t.key.command, "error", err)
		t.screen = terminal.New(24, 80)
	}
}

// runTTY reads the output of the command until it ends, or the tty does.
func (a *app) runTTY(t *tty, command *arbev1.Entry) {
	defer t.stop()
	client := &arbe.Client{Services: arbe.Services{Threads: a.services.threads, Entries: a.services.entries}}
	for {
		// Join with another size than that of the tty, so that redraw changes it.
		rows, columns := t.size()
		joined, parted := context.WithCancel(t.ctx)
		redrawn := guard.Background(func() error { t.redraw(joined); return nil })
		result, err := client.Join(t.ctx, t.key.thread, command, arbe.Terminal{
			In: silent{t.ctx}, Out: t, Size: sizeMessage(rows+1, columns), Resized: t.sizes,
		}, arbe.OnEvent(t.heard))
		parted()
		<-redrawn
		switch {
		case t.ctx.Err() != nil:
			return
		case result == nil && arbe.Reason(err) == string(fault.OutputGone): // it was read too slowly
			t.change(func() { _, _ = t.screen.Write([]byte("\x1bc")) })
			continue
		}
		end := ttyEndOf(result, err)
		if end.How == "" {
			a.log.Log(t.ctx, slog.LevelWarn, "web: a terminal was interrupted", "thread", t.key.thread, "command", t.key.command, "error", faultOf(err).Detail())
			end = ttyEnd{"gone", "The terminal was interrupted. Open this page again."}
		}
		t.change(func() { t.end = &end })
		return
	}
}

// redraw makes the command draw its screen. Once may not be enough: the keyboard and the output are joined separately, and what
// the program draws before the output is joined goes to the previous reader.
func (t *tty) redraw(ctx context.Context) {
	before := t.written.Load()
	for pause := redrawAfter; waited(ctx, pause); pause *= 2 {
		t.resize(t.size())
		if pause > redrawMost || !waited(ctx, pause) || t.written.Load() != before {
			return
		}
		rows, columns := t.size()
		t.tell(rows+1, columns)
	}
}

// waited waits, and reports whether ctx did not end meanwhile.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// ttyEndOf returns why the attempt to read a terminal ended; How is empty if that is not known.
func ttyEndOf(result *arbe.Result, err error) ttyEnd {
	if result != nil {
		r, _ := entry.As[entry.CommandResult](transcript.Entry(result.Entry))
		return ttyEnd{"ended", shellEnd(r)}
	}
	if lost, ok := errors.AsType[*arbe.OutputError](err); ok {
		err = lost.Err
	}
	switch f := faultOf(err); f.Code {
	case fault.OutOfRange:
		return ttyEnd{"elsewhere", "This terminal is shown somewhere else now."}
	case fault.NotFound, fault.Forbidden:
		return ttyEnd{"gone", "This terminal is gone."}
	case fault.Unauthenticated:
		return ttyEnd{"gone", "You are logged out."}
	case fault.Precondition:
		return ttyEnd{"gone", sentence(f.Message)}
	}
	return ttyEnd{}
}

// silent is the input of a tty. It stays empty, because tabs type with requests of their own (tty_keys.go).
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}
