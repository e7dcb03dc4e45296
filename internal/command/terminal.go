package command

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file is about commands with a terminal ([entry.Command].Terminal). Their reader and writer are those of any attached
// command; what differs is that the terminal has a size, that a server's end loses keys instead of ending the command, and
// that a terminal without anybody is hung up on, unless it is kept.

const (
	// mostTerminalTime limits a command with a terminal, unless the operator's limit is lower. A person works in it for
	// longer than a command takes, and it ends when the person is gone.
	mostTerminalTime = 24 * time.Hour
	// hangUpGrace is how long programs have to save what they must when their terminal is gone.
	hangUpGrace = 5 * time.Second
	// resizeTime limits a change of a terminal's size, because the writer's call waits for it.
	resizeTime = 5 * time.Second
)

// screen is the size of a command's terminal.
type screen struct {
	mu   sync.Mutex
	size sandbox.TerminalSize
	on   *following // the command; nil if it does not run
}

// resize changes the size. A command that has not begun gets it when it begins.
func (s *screen) resize(ctx context.Context, size sandbox.TerminalSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.apply(ctx)
}

// shownBy says which command has the terminal; nil if it no longer runs.
func (s *screen) shownBy(f *following) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on = f; f != nil {
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.apply(f.ctx)
		}()
	}
}

// apply gives the terminal its size. Callers hold s.mu.
func (s *screen) apply(ctx context.Context) {
	if s.on == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, resizeTime)
	defer stop()
	if t, ok := s.on.launcher.(sandbox.Terminals); ok {
		// It fails if the command has ended. Otherwise the next call tries again.
		_ = t.Resize(ctx, s.on.ref, s.on.id, s.size)
	}
}

// limit returns the time limit of the command.
func (w *work) limit(p sandbox.Handle) (time.Duration, error) {
	if w.command.Terminal != nil && w.command.TimeoutMS == 0 {
		return p.Most(mostTerminalTime), nil
	}
	return p.Timeout(time.Duration(w.command.TimeoutMS) * time.Millisecond)
}

// endInput ends the command because the writer of its input is gone.
func (f *following) endInput() {
	t, ok := f.launcher.(sandbox.Terminals)
	if f.command.Terminal == nil || !ok {
		f.stop(errInputCut, 0)
		return
	}
	ctx, cancel := context.WithTimeout(f.ctx, endTimeout)
	_ = t.HangUp(ctx, f.ref, f.id) // stop ends what did not hear it
	cancel()
	f.stop(errInputCut, hangUpGrace)
}
