package embedded

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// firstPause is the pause before the second restart in a row; the first one is immediate. Each further pause is
	// twice as long, up to longestPause.
	firstPause, longestPause = 500 * time.Millisecond, 30 * time.Second
	// steadyFor is how long PostgreSQL must run for its next death to count as a first one.
	steadyFor = time.Minute
	// recoverWithin limits a restart. It is long, because an interrupted recovery starts again from the beginning.
	recoverWithin = 10 * time.Minute
	// diskFull is the free space, in bytes, below which a full disk explains why PostgreSQL does not run: one segment of
	// PostgreSQL's write-ahead log.
	diskFull = 16 << 20
)

// Kept is a PostgreSQL that is restarted when it dies. Its methods may be called concurrently.
type Kept struct {
	cfg Config
	url string

	// ctx ends when the database is stopped.
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	current *Server
	err     error
}

// Keep starts a database as [Start] does, and restarts it at the same URL whenever PostgreSQL dies: at once, then
// after growing pauses. It logs each death and each failed start, with the cause. It gives up if PostgreSQL has not
// run for a full minute during [Config.KeepTrying].
func Keep(ctx context.Context, cfg Config) (*Kept, error) {
	if cfg.KeepTrying == 0 {
		cfg.KeepTrying = 15 * time.Minute
	}
	first, err := Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.port = first.log, first.port
	k := &Kept{cfg: cfg, url: first.url, current: first, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go k.keep(first)
	return k, nil
}

// URL returns the [Server.URL]. It never changes.
func (k *Kept) URL() string { return k.url }

// Done returns a channel that is closed when the database was stopped or given up. [Kept.Err] then says which.
func (k *Kept) Done() <-chan struct{} { return k.done }

// Err returns why the database was given up. It is nil while the database is kept and after [Kept.Stop].
func (k *Kept) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Stop is [Server.Stop]. It also ends a start in progress.
func (k *Kept) Stop(ctx context.Context) error {
	k.cancel()
	k.mu.Lock()
	current := k.current
	k.mu.Unlock()
	var err error
	if current != nil {
		err = current.Stop(ctx)
	}
	<-k.done
	return err
}

// keep restarts the database whenever it dies, until it is stopped or given up.
func (k *Kept) keep(s *Server) {
	defer close(k.done)
	defer k.cancel()
	var failing time.Time // since when PostgreSQL has not run for steadyFor
	var pause time.Duration
	for began := time.Now(); ; {
		<-s.Done()
		if k.ctx.Err() != nil {
			return
		}
		err := s.Err()
		if failing.IsZero() || time.Since(began) > steadyFor {
			failing, pause = time.Now(), 0
		}
		for s = nil; s == nil; {
			if time.Since(failing)+pause > k.cfg.KeepTrying {
				k.giveUp(err)
				return
			}
			k.cfg.Log.Error("PostgreSQL does not run; it is started again", "in", pause.String(), "error", fault.From(k.explain(err)).Detail())
			select {
			case <-k.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(max(2*pause, firstPause), longestPause)
			began = time.Now()
			if s, err = k.start(); k.ctx.Err() != nil {
				return
			}
		}
	}
}

func (k *Kept) giveUp(cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = fault.Newf(fault.Unavailable, "correct what the cause says, then start again, which recovers everything committed",
		"the embedded PostgreSQL died and could not be started again within %s", k.cfg.KeepTrying).Because(errors.New(fault.From(k.explain(cause)).Detail()))
}

// start starts the database once. If Stop is called in the meantime, start stops the database again.
func (k *Kept) start() (*Server, error) {
	k.mu.Lock()
	k.current = nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(k.ctx, recoverWithin)
	defer cancel()
	s, err := Start(ctx, k.cfg)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.current = s
	k.mu.Unlock()
	if k.ctx.Err() != nil { // Stop may not have seen it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), cutOffTimeout)
		defer cancel()
		return nil, errors.Join(s.Stop(ctx), k.ctx.Err())
	}
	return s, nil
}

// explain adds that the disk is full to an error, because PostgreSQL cannot log that on a full disk.
func (k *Kept) explain(err error) error {
	var disk syscall.Statfs_t
	if syscall.Statfs(k.cfg.Dir, &disk) != nil || disk.Bavail*uint64(disk.Bsize) >= diskFull {
		return err
	}
	return fault.Newf(fault.Exhausted, "free some disk space", "the disk of the database directory %s is full", k.cfg.Dir).
		Because(errors.New(fault.From(err).Detail()))
}
