package sandbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// awakeFor is how long a provider is asked to keep a box that is in use running. It is long enough for an upgrade of the
	// servers, and short enough for a box whose servers never come back.
	awakeFor = 30 * time.Minute
	// awakeEach is the time after which it is asked again.
	awakeEach = awakeFor / 3
	// awakeLook is the time between two looks for the boxes in use.
	awakeLook = time.Minute
	// awakeTime limits such a request, because what uses the sandbox waits for it.
	awakeTime = 20 * time.Second
)

// awake keeps boxes awake while they are in use, and lets them rest afterwards, if their providers put boxes to rest in which
// processes run; see [Resting]. A coding agent that waits for a model is an example. It is safe for concurrent use.
type awake struct {
	logger *slog.Logger
	slots  *slots

	mu   sync.Mutex
	held map[string]*held // by sandbox
}

// held is a box that this server keeps awake.
type held struct {
	house string
	// asked is when its provider was asked last, or is being asked. used is when the box was in use last.
	asked, used time.Time
}

// due notes that a sandbox is in use, and reports whether its provider must be asked now. The caller asks.
func (a *awake) due(house, id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.held[id]
	if !ok {
		h = &held{house: house}
		a.held[id] = h
	}
	now := time.Now()
	h.used = now
	if now.Sub(h.asked) < awakeEach {
		return false
	}
	h.asked = now
	return true
}

// ask keeps a box awake. Only a box that is gone is an error.
func (a *awake) ask(ctx context.Context, p Handle) error {
	resting, ok := p.driver.(Resting)
	if !ok {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, awakeTime)
	defer cancel()
	err := resting.KeepAwake(limited, p.Ref, awakeFor)
	if err == nil {
		return nil
	}
	a.failed(p.ID)
	if fault.CodeOf(err) == fault.NotFound || ctx.Err() != nil {
		return err
	}
	a.logger.WarnContext(ctx, "a sandbox in use cannot be kept awake", "sandbox", p.ID, "error", fault.From(err).Detail())
	return nil
}

// failed makes the next look ask again, but not every use before it.
func (a *awake) failed(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h, ok := a.held[id]; ok {
		h.asked = time.Now().Add(awakeLook/2 - awakeEach)
	}
}

// unused removes and returns the boxes that were in use before since, and are not in use any more.
func (a *awake) unused(inUse map[string]bool, since time.Time) (list map[string]held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list = map[string]held{}
	for id, h := range a.held {
		if !inUse[id] && h.used.Before(since) {
			list[id] = *h
			delete(a.held, id)
		}
	}
	return list
}

// rest lets a box rest.
func (a *awake) rest(ctx context.Context, p Handle) error {
	if resting, ok := p.driver.(Resting); ok {
		return resting.KeepAwake(ctx, p.Ref, 0)
	}
	return nil
}

// resting returns the names of the drivers whose boxes rest.
func (d *drivers) resting() []string {
	names := slices.Collect(maps.Keys(d.accounts.of)) // accounts have the same drivers
	for name, driver := range d.all() {
		if _, ok := driver.(Resting); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
