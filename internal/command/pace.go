package command

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file decides how far the record of an ordinary command may grow. The next server reads the record if this one is
// killed, so it stays complete as long as an artifact can hold the output and this server's disk has space for it. After
// that, only its beginning and its end are kept: the command may go on printing as soon as this server has read its output.

const (
	// paceStep is the number of bytes by which a record may grow at once.
	paceStep = 16 << 20
	// paceAhead is how many bytes before its limit a record is extended, so that the command does not have to wait.
	paceAhead = 8 << 20
	// paceBehind is how many read bytes stay in an incomplete record: the end of the output, which the next server needs for
	// the result.
	paceBehind = 4 << 20
)

// releaseEvery is the number of bytes of a record that are released together, because each release is a message to the
// sandbox.
const releaseEvery = 1 << 20

// pace tracks how far this server has read the record of a command.
type pace struct {
	mu      sync.Mutex
	read    int64
	behind  []int64 // positions releaseEvery apart; the first is at least paceBehind before read, once so much was read
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

// keep lets the record of a command grow as it is read, until ctx ends. reserve reserves bytes of this server's disk for
// it, as far as there is space.
func (p *pace) keep(ctx context.Context, of launched, reserve func(int64) bool, logger *slog.Logger) {
	limit, extended, released := int64(sandbox.RecordSize), int64(sandbox.RecordSize), int64(0)
	for complete := true; ; {
		read, unneeded := p.position()
		for complete && read+paceAhead >= limit {
			if complete = reserve(paceStep); complete {
				limit += paceStep
			}
		}
		var err error
		if extended < limit {
			if err = of.extend(ctx, limit); err == nil {
				extended = limit
			}
		}
		if err == nil && !complete && unneeded-released >= releaseEvery {
			if err = of.release(ctx, unneeded); err == nil {
				released = unneeded
			}
		}
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			again = time.After(time.Second) // even without a change, because the command may be waiting
			logger.WarnContext(ctx, "the record of an output cannot grow in the sandbox; the command may have to wait", "error", err)
		}
		select {
		case <-p.changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// position returns how far the record was read. unneeded is how much of its beginning can be released if the record need not
// stay complete.
func (p *pace) position() (read, unneeded int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.behind) > 0 && p.read-p.behind[0] >= paceBehind {
		unneeded = p.behind[0]
	}
	return p.read, unneeded
}
