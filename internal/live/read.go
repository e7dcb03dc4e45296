package live

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/db"
)

// countEvery is the shortest time between two counts of a member's unread entries after threads have changed. The
// member's own readings and notices are read at once.
const countEvery = time.Second

// has reports whether the member's inbox was read completely enough for a view.
func (r *reader) has(want Want) bool {
	return r != nil && r.want.first >= want.Threads && !slices.ContainsFunc(want.IDs, func(id string) bool { return !slices.Contains(r.want.ids, id) })
}

// readInboxes updates the inboxes that views want, and forgets the others.
func (p *picture) readInboxes(ctx context.Context, r *round) error {
	maps.DeleteFunc(p.readers, func(id string, _ *reader) bool { _, wanted := r.readers[id]; return !wanted })
	for id, want := range r.readers {
		at := p.readers[id]
		if at == nil {
			at = &reader{}
		}
		changed := at.inbox == nil || r.isMarked(Inbox, id) || want.first != at.want.first || !slices.Equal(want.ids, at.want.ids)
		switch since := time.Since(at.counted); {
		case changed:
		case len(r.threads) == 0:
			continue
		case since < countEvery:
			if !at.again {
				at.again = true
				time.AfterFunc(countEvery-since, func() { p.mark(Key{Inbox, id}) })
			}
			continue
		}
		now, err := p.of.Inboxes.Get(ctx, db.Scope{House: p.scope.House, Agent: id}, p.threadsOf(want))
		if err != nil {
			return err
		}
		p.readers[id] = &reader{inbox: share(p, Key{Inbox, id}, &now), counted: time.Now(), want: want}
	}
	return nil
}

// threadsOf returns the ids of the threads whose readings a member watches.
func (p *picture) threadsOf(want wantedReadings) []string {
	ids := slices.Clone(want.ids)
	for _, t := range p.window.first(want.first) {
		if !slices.Contains(ids, t.ID) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}
