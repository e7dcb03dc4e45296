package live

import (
	"context"
	"slices"

	"github.com/arbe-dev/arbe/internal/thread"
)

// readFocused updates the threads that are watched by id, and forgets the others so that they take no more memory.
func (p *picture) readFocused(ctx context.Context, r *round) error {
	had := p.focused
	p.focused = map[string]*focus{}
	for _, id := range r.wanted.IDs {
		p.focused[id] = had[id]
	}
	// Read all new threads with one query, or all threads, because one query for each would take as many round trips.
	var ids []string
	now := map[string]*thread.Thread{}
	for id, f := range p.focused {
		if f == nil || r.all {
			ids = append(ids, id)
		}
	}
	if err := p.readThreads(ctx, ids, now); err != nil {
		return err
	}
	if err := p.readRelated(ctx, r, ids); err != nil {
		return err
	}
	for id := range p.focused {
		if err := p.readFocus(ctx, r, id, now[id]); err != nil {
			// Otherwise the next round would mistake a partly read new thread for a complete one.
			p.focused = had
			return err
		}
	}
	return nil
}

// readRelated finds out which threads have forks and children.
func (p *picture) readRelated(ctx context.Context, r *round, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	forked, err := p.of.Threads.WithForks(ctx, p.scope, ids)
	if err != nil {
		return err
	}
	for _, id := range forked {
		r.forked[id] = true
	}
	parents, err := p.of.Threads.WithChildren(ctx, p.scope, ids)
	if err != nil {
		return err
	}
	for _, id := range parents {
		r.parents[id] = true
	}
	return nil
}

// readFocus updates a thread that is watched by id. now is the thread if it was read again with the others.
func (p *picture) readFocus(ctx context.Context, r *round, id string, now *thread.Thread) error {
	f := p.focused[id]
	isNew := f == nil
	if isNew {
		f = &focus{}
		p.focused[id] = f
	}
	if t, read := r.threads[id]; read {
		f.thread = t
	}
	if isNew || r.all {
		f.thread = now
	}
	if f.thread == nil {
		*f = focus{}
		return nil
	}
	return f.read(ctx, p, r, isNew || r.all)
}

// read updates everything that belongs to the thread.
func (f *focus) read(ctx context.Context, p *picture, r *round, all bool) (err error) {
	if f.parent, err = related(ctx, p, r, f.parent, f.thread.ParentThread, all); err != nil {
		return err
	}
	source := ""
	if f.thread.Origin != nil {
		source = f.thread.Origin.Thread
	}
	if f.source, err = related(ctx, p, r, f.source, source, all); err != nil {
		return err
	}
	if f.forks, err = family(ctx, p, r, f.forks, thread.Filter{ForkedFrom: f.thread.ID, Limit: MaxForks}, all, r.forked[f.thread.ID]); err != nil {
		return err
	}
	if f.children, err = family(ctx, p, r, f.children, thread.Filter{ParentThread: f.thread.ID, Limit: MaxChildren}, all, r.parents[f.thread.ID]); err != nil {
		return err
	}
	if err := f.readBox(ctx, p, r, all); err != nil {
		return err
	}
	id := f.thread.Environment
	if id == "" {
		id = p.house.DefaultEnvironment
	}
	switch {
	case id == "":
		f.environment = nil
	case all, f.environment == nil, f.environment.ID != id, r.isMarked(Environment, id):
		f.environment, err = readOne(ctx, p, r, Key{Environment, id}, p.of.Boxes.Environment)
	}
	return err
}

// readBox updates the thread's sandbox.
func (f *focus) readBox(ctx context.Context, p *picture, r *round, all bool) (err error) {
	id := f.thread.Sandbox
	switch {
	case id == "":
		f.box = nil
	case all, f.box == nil, f.box.ID != id, r.isMarked(Sandbox, id):
		f.box, err = readOne(ctx, p, r, Key{Sandbox, id}, p.of.Boxes.Sandbox)
	}
	return err
}

// related returns the thread with this id, or nil if it does not exist. had is the result of the last round. related
// reads the thread again only if it may have changed.
func related(ctx context.Context, p *picture, r *round, had *thread.Thread, id string, all bool) (*thread.Thread, error) {
	if id == "" {
		return nil, nil
	}
	if t, read := r.threads[id]; read {
		return t, nil
	}
	if !all && had != nil && had.ID == id {
		return had, nil
	}
	now := map[string]*thread.Thread{}
	err := p.readThreads(ctx, []string{id}, now)
	return now[id], err
}

// family returns the forks or children that a filter selects. had is the result of the last round. They are read again
// only if one of them was changed, created or deleted. With all, exist says whether there are any.
func family(ctx context.Context, p *picture, r *round, had []*thread.Thread, f thread.Filter, all, exist bool) ([]*thread.Thread, error) {
	switch {
	case all && !exist:
		return nil, nil
	case !all && !familyMarked(r, had, f):
		return had, nil
	}
	list, err := p.of.Threads.List(ctx, p.scope, f)
	var now []*thread.Thread
	for _, t := range list {
		now = append(now, share(p, Key{Thread, t.ID}, &t))
	}
	return now, err
}

func familyMarked(r *round, had []*thread.Thread, f thread.Filter) bool {
	for id, t := range r.threads {
		belongs := t != nil && (f.ParentThread != "" && t.ParentThread == f.ParentThread || f.ForkedFrom != "" && t.Origin != nil && t.Origin.Thread == f.ForkedFrom)
		if belongs || slices.ContainsFunc(had, func(h *thread.Thread) bool { return h.ID == id }) {
			return true
		}
	}
	return false
}
