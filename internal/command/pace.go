package command

import (
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

// keepPace lets the record of a command grow as it is read, while the command is followed.
func (f *following) keepPace() {
	limit, extended, released := int64(sandbox.RecordSize), int64(sandbox.RecordSize), int64(0)
	for whole := true; ; {
		read, unneeded := f.pace.position()
		for whole && read+paceAhead >= limit {
			if whole = f.out.reserve(paceStep); whole {
				limit += paceStep
			}
		}
		var err error
		if extended < limit {
			if err = f.launcher.Extend(f.ctx, f.ref, f.id, limit); err == nil {
				extended = limit
			}
		}
		if err == nil && !whole && unneeded-released >= releaseEvery {
			if err = f.launcher.Release(f.ctx, f.ref, f.id, unneeded); err == nil {
				released = unneeded
			}
		}
		var again <-chan time.Time
		if err != nil && f.ctx.Err() == nil {
			again = time.After(time.Second) // without a change too, because the command may wait for it
			f.config.Logger.WarnContext(f.ctx, "the record of an output cannot grow in the sandbox; the command may have to wait", "error", err)
		}
		select {
		case <-f.pace.changed:
		case <-again:
		case <-f.ctx.Done():
			return
		}
	}
}
