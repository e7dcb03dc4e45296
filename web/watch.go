package web

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
	"github.com/arbe-dev/arbe/web/guard"
)

// maxWaiting limits how many events a slow browser may be behind. A browser that is further behind gets the whole view, so
// that the waiting events take no more memory.
const maxWaiting = 100

// A sharedWatch serves all connections that show the same part of a house: each change is received once, rendered once and
// sent to all of them. It watches with the session of one subscriber, the leader. When the leader leaves or loses access,
// another subscriber becomes the leader. Each connection checks separately that its reader has access, because the watch runs
// with only one session.
type sharedWatch struct {
	houses  arbev1connect.HouseServiceClient
	log     *slog.Logger
	key     string
	request *arbev1.WatchHouseRequest
	// render renders the watched rows as views, by the kind of topic that shows them. It returns nil if no view changed.
	render func(context.Context, *watched) (map[string]view, error)

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	views       map[string]view
	// leader is the subscriber whose session is used. stop ends the current watch with that session.
	leader *subscriber
	stop   context.CancelFunc
	// changed holds a token after a subscriber joined or left.
	changed chan struct{}
}

// view is the part of a page that shows something.
type view interface {
	// cursor identifies this state of the view.
	cursor() string
	// whole returns the patches for a page in an unknown state, and since those for a page that shows old.
	whole() []patch
	since(old view) []patch
}

// subscriber is one connection to a sharedWatch. The watch's lock guards it.
type subscriber struct {
	// session is a context that carries the reader's session. It ends when the reader leaves.
	session context.Context
	topic   topic
	// refused is set when the watch was refused with this session.
	refused bool
	// waiting are the events to send. With resend, the whole view is sent instead.
	waiting []string
	resend  bool
	// pending holds a token when there is something to send. Subscribers of one connection share it.
	pending chan struct{}
}

// watched holds the current rows of a watch.
type watched struct {
	house        *arbev1.House
	threads      map[string]*arbev1.Thread
	sandboxes    map[string]*arbev1.Sandbox
	environments map[string]*arbev1.Environment
	members      map[string]*arbev1.Member
	bots         map[string]*arbev1.Bot
	rest         string
}

// sharedWatches holds all watches with subscribers, by their keys.
type sharedWatches struct {
	mu  sync.Mutex
	all map[string]*sharedWatch
}

// join adds a subscriber to the watch with a key. The first one starts it.
func (ws *sharedWatches) join(key string, fresh func() *sharedWatch, g *subscriber) *sharedWatch {
	if g.pending == nil {
		g.pending = make(chan struct{}, 1)
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if r := ws.all[key]; r != nil {
		r.add(g)
		return r
	}
	if ws.all == nil {
		ws.all = map[string]*sharedWatch{}
	}
	r := fresh()
	r.key, r.subscribers, r.changed = key, map[*subscriber]struct{}{}, make(chan struct{}, 1)
	r.stop = func() {}
	ws.all[key] = r
	r.add(g) // before run, which ends without a subscriber
	guard.Background(func() error { r.run(); return nil })
	return r
}

// leave removes a subscriber. The last one ends the watch.
func (ws *sharedWatches) leave(r *sharedWatch, g *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subscribers, g)
	if len(r.subscribers) == 0 {
		delete(ws.all, r.key)
		r.notify()
	}
	if r.leader == g || len(r.subscribers) == 0 {
		r.stop()
	}
}

func (r *sharedWatch) notify() { wake(r.changed) }

// wake puts a token into a channel of capacity one, unless the channel holds one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *sharedWatch) add(g *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers[g] = struct{}{}
	if f := r.views[g.topic.kind]; f != nil {
		g.resend = true
		wake(g.pending)
	}
	r.notify()
}

// take returns the lines to send to a subscriber.
func (r *sharedWatch) take(g *subscriber) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := g.waiting
	g.waiting = nil
	if !g.resend {
		return lines, nil
	}
	g.resend = false
	f := r.views[g.topic.kind]
	e := event{Topic: g.topic.name(), Cursor: f.cursor()}
	if f.cursor() != g.topic.cursor || g.topic.cursor == "" {
		e.Patches = f.whole()
	}
	g.topic.cursor = "" // later states are not tracked, because a subscriber that falls behind gets everything
	line, err := e.line()
	return []string{line}, err
}

// run watches until no subscriber is left.
func (r *sharedWatch) run() {
	const firstPause, lastPause = 50 * time.Millisecond, 5 * time.Second
	for pause := firstPause; ; {
		leader, empty := r.choose()
		switch {
		case empty:
			return
		case leader == nil:
			<-r.changed // until a subscriber joins or leaves
			continue
		}
		// The watch uses the leader's session, but outlives the leader's connection until stop is called.
		ctx, stop := context.WithCancel(context.WithoutCancel(leader.session))
		r.mu.Lock()
		r.stop = stop
		_, there := r.subscribers[leader]
		r.mu.Unlock()
		if !there {
			stop()
			continue
		}
		began := time.Now()
		err := guard.Run(func() error { return r.watch(ctx) })
		left := ctx.Err() != nil
		stop()
		if left {
			continue
		}
		f := faultOf(err)
		switch f.Code {
		case fault.NotFound, fault.Forbidden, fault.Unauthenticated:
			r.mu.Lock()
			leader.refused = true
			r.mu.Unlock()
			continue
		}
		level := slog.LevelInfo
		if f.Code == fault.Internal {
			level = slog.LevelError
		}
		r.log.Log(ctx, level, "web: a watch was interrupted; trying again", "watch", r.key, "error", f.Detail())
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
}

// choose picks a leader among the subscribers that were not refused.
func (r *sharedWatch) choose() (leader *subscriber, empty bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g := range r.subscribers {
		if !g.refused {
			r.leader = g
			return g, false
		}
	}
	r.leader = nil
	return nil, len(r.subscribers) == 0
}

// watch sends changes to the subscribers until the watch ends.
func (r *sharedWatch) watch(ctx context.Context) error {
	stream, err := r.houses.WatchHouse(ctx, r.request)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // nothing to handle: the stream's end was reported, or nobody needs it
	w := &watched{
		threads: map[string]*arbev1.Thread{}, sandboxes: map[string]*arbev1.Sandbox{},
		environments: map[string]*arbev1.Environment{}, members: map[string]*arbev1.Member{}, bots: map[string]*arbev1.Bot{},
	}
	caughtUp := false
	for stream.Receive() {
		e := stream.Msg()
		changed := w.take(e)
		if e.GetCaughtUp() != nil {
			caughtUp, changed = true, true
		}
		if !caughtUp || !changed {
			continue
		}
		if err := r.publish(ctx, w); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errors.New("the watch ended")
}

// take applies an event, and reports whether a row changed.
func (w *watched) take(e *arbev1.WatchHouseResponse) bool {
	switch row := e.GetEvent().(type) {
	case *arbev1.WatchHouseResponse_House:
		w.house = row.House
	case *arbev1.WatchHouseResponse_Thread:
		w.threads[row.Thread.Id] = row.Thread
	case *arbev1.WatchHouseResponse_Sandbox:
		w.sandboxes[row.Sandbox.Id] = row.Sandbox
	case *arbev1.WatchHouseResponse_Environment:
		w.environments[row.Environment.Id] = row.Environment
	case *arbev1.WatchHouseResponse_Member:
		w.members[row.Member.Agent.Id] = row.Member
	case *arbev1.WatchHouseResponse_Bot:
		w.bots[row.Bot.Id] = row.Bot
	case *arbev1.WatchHouseResponse_Rest:
		w.rest = row.Rest.PageToken
	case *arbev1.WatchHouseResponse_Gone:
		switch row.Gone.Kind {
		case "thread":
			delete(w.threads, row.Gone.Id)
		case "sandbox":
			delete(w.sandboxes, row.Gone.Id)
		case "environment":
			delete(w.environments, row.Gone.Id)
		case "member":
			delete(w.members, row.Gone.Id)
		case "bot":
			delete(w.bots, row.Gone.Id)
		}
	default:
		return false
	}
	return true
}

// publish renders the watched rows, and queues the changes of its topic for every subscriber.
func (r *sharedWatch) publish(ctx context.Context, w *watched) error {
	now, err := r.render(ctx, w)
	if err != nil || now == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.views
	r.views = now
	lines := map[string]string{}
	for kind, f := range now {
		if old := had[kind]; old != nil {
			if patches := f.since(old); len(patches) > 0 {
				if lines[kind], err = (event{Topic: kind + "/" + r.topicID(), Cursor: f.cursor(), Patches: patches}).line(); err != nil {
					return err
				}
			}
		}
	}
	for g := range r.subscribers {
		line := lines[g.topic.kind]
		switch {
		case had[g.topic.kind] == nil:
			g.resend = true
		case g.resend || line == "":
			continue // the whole view is sent anyway, or nothing changed
		case len(g.waiting) == maxWaiting:
			g.waiting, g.resend = nil, true
		default:
			g.waiting = append(g.waiting, line)
		}
		wake(g.pending)
	}
	return nil
}

// topicID returns the id in the names of the topics.
func (r *sharedWatch) topicID() string {
	if len(r.request.ThreadIds) > 0 {
		return r.request.ThreadIds[0]
	}
	return r.request.HouseId
}
