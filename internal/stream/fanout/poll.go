package fanout

import (
	"context"
	"log/slog"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// pollEvery is the longest delay of a tail if a notification is lost.
const pollEvery = 3 * time.Second

// poller regularly asks Postgres where the watched streams end. Notifications make tails fast; the poller makes them
// correct, because a notification may be lost.
type poller struct {
	ctx    context.Context
	log    *slog.Logger
	store  *store.Store
	topics *topics
	// now makes run poll at once.
	now chan struct{}
}

func (p *poller) run() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.topics.sweep()
		case <-p.now:
		case <-p.ctx.Done():
			return
		}
		p.check()
	}
}

// soon makes run poll at once.
func (p *poller) soon() {
	select {
	case p.now <- struct{}{}:
	default: // a token is already pending
	}
}

// check updates every topic: where its stream ends, whether it is closed or deleted, and whether it lost its end.
func (p *poller) check() {
	ids, reached := p.topics.watched() // first: otherwise an entry that comes in between would look like a lost end
	if len(ids) == 0 {
		return
	}
	ends, err := p.store.Ends(p.ctx, ids)
	if err != nil {
		if p.ctx.Err() == nil {
			p.log.WarnContext(p.ctx, "cannot look for new entries; trying again", "error", fault.From(err).Detail())
		}
		return
	}
	for _, id := range ids {
		switch end, there := ends[id]; {
		case !there:
			p.topics.deleted(id)
		case end.Tail < reached[id]:
			p.topics.lost(id)
		default:
			p.topics.reached(id, end.Tail)
		}
		if end := ends[id]; end.Closed {
			p.topics.closed(id, end.Tail)
		}
	}
}
