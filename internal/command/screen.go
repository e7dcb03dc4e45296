package command

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// resizeTime limits a change of a terminal's size, because the writer's call waits for it.
const resizeTime = 5 * time.Second

// screen is the size of a command's terminal.
type screen struct {
	mu   sync.Mutex
	size sandbox.TerminalSize
	of   *launched // the command; nil if it does not run
}

// show applies the size to the terminal of a command from now on. nil means that no command runs.
func (s *screen) show(ctx context.Context, of *launched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of = of; of != nil {
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.apply(ctx)
		}()
	}
}

// resize changes the size. A command that has not begun gets it when it begins.
func (s *screen) resize(ctx context.Context, size sandbox.TerminalSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.apply(ctx)
}

// apply gives the terminal its size. Callers hold s.mu.
func (s *screen) apply(ctx context.Context) {
	if s.of == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, resizeTime)
	defer stop()
	_ = s.of.resize(ctx, s.size) // fails if the command has ended; otherwise the next call tries again
}
