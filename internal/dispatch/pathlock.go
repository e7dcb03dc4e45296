package dispatch

import (
	"context"
	"fmt"
	"sync"
)

// pathLocks serializes this server's changes to each file. Two calls of one step may change the same file.
type pathLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until the key is free, and returns a function that releases it.
func (l *pathLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy := l.held[key]
		if busy == nil {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			done := make(chan struct{})
			l.held[key] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another change of the file: %w", ctx.Err())
		}
	}
}
