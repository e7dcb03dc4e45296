package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file decides how far the record of an ordinary command may grow. A record is what the next server reads if this
// one is killed, so it is kept whole as long as an artifact can hold the output and there is room for it on this
// server's disk. After that only its beginning and its end are kept: the command may print on as soon as this server
// has read what it printed.

const (
	// paceStep is how many bytes a record may grow at once.
	paceStep = 16 << 20
	// paceAhead is how long before its limit a record may grow on, so that the command does not have to wait.
	paceAhead = 8 << 20
	// paceBehind is how many of the bytes that were read stay in a record that is not kept whole: the end of the output
	// that the next server needs for the result.
	paceBehind = 4 << 20
)

// pace is how far this server has read the record of a command.
type pace struct {
	mu      sync.Mutex
	read    int64
	behind  []int64 // positions releaseEvery apart, of which the first is at least paceBehind before read
	changed chan struct{}
}

func newPace() *pace { return &pace{changed: make(chan struct{}, 1)} }

// passed reports that the record was read up to a position.
func (p *pace) passed(position int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = position
	if n := len(p.behind); n > 0 && position-p.behind[n-1] < releaseEvery {
		return
	}
	p.behind = append(p.behind, position)
	for len(p.behind) > 1 && position-p.behind[1] >= paceBehind {
		p.behind = p.behind[1:]
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// position returns how far the record was read, and up to where it is not needed if it is not kept whole.
func (p *pace) position() (read, unneeded int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.behind) > 0 && p.read-p.behind[0] >= paceBehind {
		unneeded = p.behind[0]
	}
	return p.read, unneeded
}

// keepPace lets the record of a command grow as it is read, until ctx ends.
func (w *commandWorker) keepPace(ctx context.Context, l sandbox.Launcher, ref, id string, p *pace, out *output) {
	limit, extended, released := int64(sandbox.RecordSize), int64(sandbox.RecordSize), int64(0)
	for whole := true; ; {
		read, unneeded := p.position()
		for whole && read+paceAhead >= limit {
			if whole = out.reserve(paceStep); whole {
				limit += paceStep
			}
		}
		var err error
		if extended < limit {
			if err = l.Extend(ctx, ref, id, limit); err == nil {
				extended = limit
			}
		}
		if err == nil && !whole && unneeded-released >= releaseEvery {
			if err = l.Release(ctx, ref, id, unneeded); err == nil {
				released = unneeded
			}
		}
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			again = time.After(time.Second) // without a change too, because the command may wait for it
			w.logger.WarnContext(ctx, "the record of an output cannot grow in the sandbox; the command may have to wait", "error", err)
		}
		select {
		case <-p.changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}
