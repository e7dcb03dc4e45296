package web

import (
	"context"
	"maps"
	"slices"

	"connectrpc.com/connect"
	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
)

// followHouse keeps topics of a house live: its sidebar, its list of threads, and the names of its members.
func (a *app) followHouse(ctx context.Context, c *liveConn, house string, topics []topic) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := func(err error) error {
		for _, t := range topics {
			if err := c.end(ctx, t, "house", err); err != nil {
				return err
			}
		}
		return nil
	}
	// The shared watch brings the changes, but may run on behalf of another reader. This watch is needed because it ends when
	// this reader loses access.
	member, err := a.services.houses.WatchHouse(ctx, &arbev1.WatchHouseRequest{HouseId: house, Inbox: true})
	if err != nil {
		return end(err)
	}
	defer func() { _ = member.Close() }() // nothing to handle: the reader left, or the stream ended
	if !member.Receive() {
		return end(member.Err())
	}
	inboxes := make(chan *arbev1.Inbox)
	ended := guard.Background(func() error { return passInboxes(ctx, member, inboxes) })

	pending := make(chan struct{}, 1)
	var here []*subscriber
	var in *sharedWatch
	var own *ownView
	for _, t := range topics {
		if t.kind == "mine" {
			own = &ownView{topic: t}
			continue
		}
		g := &subscriber{session: ctx, topic: t, pending: pending}
		in = a.watches.join("house/"+house, func() *sharedWatch { return a.houseWatch(house) }, g)
		defer a.watches.leave(in, g)
		here = append(here, g)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return end(err)
		case i := <-inboxes:
			if err := c.showInbox(ctx, own, house, i); err != nil {
				return err
			}
			continue
		case <-pending:
		}
		if in == nil { // only the reader's own topic is followed
			continue
		}
		if err := c.pass(in, here...); err != nil {
			return err
		}
	}
}

// passInboxes forwards the inboxes of a watch until it ends, beginning with the last received message.
func passInboxes(ctx context.Context, member *connect.ServerStreamForClient[arbev1.WatchHouseResponse], inboxes chan<- *arbev1.Inbox) error {
	for {
		if i := member.Msg().GetInbox(); i != nil {
			select {
			case inboxes <- i:
			case <-ctx.Done():
			}
		}
		if !member.Receive() {
			return member.Err()
		}
	}
}

// pass sends the waiting events of subscribers of a watch in one write.
func (c *liveConn) pass(r *sharedWatch, subscribers ...*subscriber) error {
	var all []string
	for _, g := range subscribers {
		lines, err := r.take(g)
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	if len(all) > 0 {
		c.write(topicsEvent, all...)
	}
	return nil
}

// threadWatch returns the watch of a thread's title, head and details, for everyone who has the thread open.
func (a *app) threadWatch(t *arbev1.Thread) *sharedWatch {
	return &sharedWatch{
		houses: a.services.houses, log: a.log, request: &arbev1.WatchHouseRequest{HouseId: t.HouseId, ThreadIds: []string{t.Id}, Members: true},
		render: func(ctx context.Context, w *watched) (map[string]view, error) {
			t := w.threads[t.Id]
			if t == nil {
				return nil, nil // the tail of its log reports that it is gone
			}
			b, k := w.sandboxOf(t), w.relativesOf(t)
			f := parts{}
			for id, part := range map[string]templ.Component{
				"title": pageTitle(windowTitle(t, w.house.Name)), "thread-head": threadHead(t, b.Sandbox, k.Parent), "details": threadDetails(t, b, k),
				"answering": answeringForm(t, partnerOf(t, w.people()), answeringBots(w.people())), "continuing": continuing(t, codingBots(w.people(), t.AgentId)),
			} {
				text, err := rendered(ctx, part)
				if err != nil {
					return nil, err
				}
				f[id] = string(text)
			}
			children, err := familyOf(ctx, k)
			return map[string]view{"thread": threadParts{f, children}}, err
		},
	}
}

// threadParts is a thread's page around its log: its parts, and its children.
type threadParts struct {
	parts    parts
	children *family
}

func (p threadParts) cursor() string { return "" }

func (p threadParts) whole() []patch { return slices.Concat(p.parts.whole(), p.children.whole()) }

func (p threadParts) since(before view) []patch {
	old, ok := before.(threadParts)
	if !ok {
		return p.whole()
	}
	return slices.Concat(p.parts.since(old.parts), p.children.since(old.children))
}

// sandboxOf returns where a thread's commands run, from the watched rows.
func (w *watched) sandboxOf(t *arbev1.Thread) workplace {
	b := workplace{Inherited: t.EnvironmentId == "", Environment: w.environments[t.EnvironmentId], Sandbox: w.sandboxes[t.SandboxId]}
	if b.Inherited {
		b.Environment = w.environments[w.house.DefaultEnvironmentId]
	}
	return b
}

// relativesOf returns a thread's parent, its source, its forks and its children, from the watched rows.
func (w *watched) relativesOf(t *arbev1.Thread) relatives {
	k := relatives{Parent: w.threads[t.ParentThreadId], Source: w.threads[t.ForkedFrom.GetThreadId()]}
	var children []*arbev1.Thread
	for _, other := range slices.SortedFunc(maps.Values(w.threads), arbe.CompareThreads) {
		if other.ForkedFrom.GetThreadId() == t.Id {
			k.Forks = append(k.Forks, other)
		}
		if other.ParentThreadId == t.Id {
			children = append(children, other)
		}
	}
	k.withChildren(children)
	if k.More = len(k.Forks) > maxForks; k.More {
		k.Forks = k.Forks[:maxForks]
	}
	return k
}

// parts are elements of a page by id. They change independently, so that a change to one does not resend the others.
type parts map[string]string

func (p parts) cursor() string { return "" }

func (p parts) whole() []patch { return p.since(parts{}) }

func (p parts) since(before view) []patch {
	old, _ := before.(parts)
	var patches []patch
	for _, id := range slices.Sorted(maps.Keys(p)) {
		if old[id] != p[id] {
			patches = append(patches, patch{Selector: "#" + id, HTML: p[id]})
		}
	}
	return patches
}

// ownView is the topic of one reader's inbox, with the parts of it that their page shows.
type ownView struct {
	topic topic
	shown *mine
}

// showInbox sends the changes of a reader's inbox, if their page shows it.
func (c *liveConn) showInbox(ctx context.Context, own *ownView, house string, i *arbev1.Inbox) error {
	if own == nil {
		return nil
	}
	now, err := mineWhole(ctx, house, i)
	if err != nil {
		return err
	}
	e := event{Topic: own.topic.name(), Cursor: now.cursor()}
	switch {
	case own.shown != nil:
		if e.Patches = now.since(own.shown); len(e.Patches) == 0 {
			return nil
		}
	case now.cursor() != own.topic.cursor:
		e.Patches = now.whole()
	}
	own.shown = now
	line, err := e.line()
	if err == nil {
		c.write(topicsEvent, line)
	}
	return err
}
