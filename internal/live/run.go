package live

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/wait"
)

// run updates the picture until nobody watches it or the Pictures are closed.
func (p *picture) run() {
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	pause := minRetryPause
	for {
		select {
		case <-p.of.ctx.Done():
			return
		case <-refresh.C:
			if p.watchers.Load() == 0 && p.of.remove(p) {
				return
			}
			p.markAll()
			continue
		case <-p.wake:
		}
		if p.watchers.Load() == 0 {
			p.markAllLater()
			continue
		}
		r := p.take()
		if err := p.read(r); err != nil {
			p.failed(r, err)
			wait.For(p.of.ctx, pause)
			pause = min(2*pause, maxRetryPause)
			continue
		}
		pause = minRetryPause
		p.publish()
		wait.For(p.of.ctx, roundEvery)
	}
}

// failed makes the next round read what this one could not.
func (p *picture) failed(r *round, err error) {
	p.putBack(r)
	p.wakeUp()
	if p.of.ctx.Err() == nil {
		p.of.Logger.WarnContext(p.of.ctx, "the live view of a house cannot be updated; trying again", "house", p.scope.House, "error", fault.From(err).Detail())
	}
}

// markAllLater marks everything without waking the goroutine. Nobody watches now and changes are not read, so the next
// watcher needs a complete round.
func (p *picture) markAllLater() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
}

// read updates the picture.
func (p *picture) read(r *round) error {
	ctx, cancel := context.WithTimeout(p.of.ctx, readTimeout)
	defer cancel()
	if p.house == nil || r.isMarked(House, p.scope.House) {
		at, err := p.of.Houses.Get(ctx, p.scope)
		if err != nil {
			return err
		}
		at.Role = "" // it depends on the member who asks, but all members share this row
		p.house = share(p, Key{House, at.ID}, &at)
	}
	if err := p.readMarked(ctx, r); err != nil {
		return err
	}
	if err := p.window.read(ctx, p, r); err != nil {
		return err
	}
	if err := p.readFocused(ctx, r); err != nil {
		return err
	}
	if err := p.readMembers(ctx, r); err != nil {
		return err
	}
	if err := p.readBots(ctx, r); err != nil {
		return err
	}
	return p.readInboxes(ctx, r)
}

// readMarked reads the marked threads. If everything is marked, they are read as parts of the picture instead of one by
// one.
func (p *picture) readMarked(ctx context.Context, r *round) error {
	var ids []string
	for key := range r.marked {
		if key.Kind == Thread && !r.all {
			ids = append(ids, key.ID)
			r.threads[key.ID] = nil
		}
	}
	return p.readThreads(ctx, ids, r.threads)
}
