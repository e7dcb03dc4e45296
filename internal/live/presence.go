package live

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// A server knows who is connected to it, and notifies the other servers: at once when somebody opens or leaves a thread, and again every few
// seconds, so that the notices of a killed server soon expire. Nothing is stored.

const (
	// presenceChannel carries the notices of servers, as JSON ([presenceNotice]).
	presenceChannel = "arbe_presence"
	// presentFor is how long a notice is valid. A server repeats its notices three times as often.
	presentFor = 30 * time.Second
	// settleFor is how long a server collects changes for one notice.
	settleFor = 100 * time.Millisecond
	// maxPresent limits the agents that are shown in a thread, and those in a notice. maxNotice limits a notice, in bytes.
	maxPresent, maxNotice = 100, 7000
)

// threadRef identifies a thread of a house.
type threadRef struct{ House, Thread string }

// presence records who has which thread open, on all servers. It is safe for concurrent use.
type presence struct {
	server string
	lasts  time.Duration

	mu sync.Mutex
	// here counts this server's connections, by agent. there holds other servers' notices, by server.
	here  map[threadRef]map[string]int
	there map[threadRef]map[string]sighting
	// watchers receive a token when the people of a thread may have changed.
	watchers map[threadRef]map[chan struct{}]struct{}
	// changed holds the threads for the next notice. tell receives a token when there are any.
	changed map[threadRef]struct{}
	tell    chan struct{}
}

// sighting is another server's notice about a thread.
type sighting struct {
	agents []string
	until  time.Time
}

// presenceNotice is a server's notice about some threads.
type presenceNotice struct {
	Server string
	Places []presentAt
}

// presentAt lists the agents in a thread. An empty list means that all have left.
type presentAt struct {
	threadRef
	Agents []string
}

func newPresence(lasts time.Duration) *presence {
	return &presence{
		server: rand.Text(), lasts: cmp.Or(lasts, presentFor), here: map[threadRef]map[string]int{}, there: map[threadRef]map[string]sighting{},
		watchers: map[threadRef]map[chan struct{}]struct{}{}, changed: map[threadRef]struct{}{}, tell: make(chan struct{}, 1),
	}
}

// enter adds a connection. The channel receives a token when somebody else may have come or left.
func (s *presence) enter(at threadRef, agent string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.here[at] == nil {
		s.here[at] = map[string]int{}
	}
	if s.here[at][agent]++; s.here[at][agent] == 1 {
		s.changes(at, true)
	}
	changed := make(chan struct{}, 1)
	if s.watchers[at] == nil {
		s.watchers[at] = map[chan struct{}]struct{}{}
	}
	s.watchers[at][changed] = struct{}{}
	return changed
}

func (s *presence) leave(at threadRef, agent string, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.watchers[at], changed); len(s.watchers[at]) == 0 {
		delete(s.watchers, at)
	}
	if s.here[at][agent]--; s.here[at][agent] > 0 {
		return
	}
	if delete(s.here[at], agent); len(s.here[at]) == 0 {
		delete(s.here, at)
	}
	s.changes(at, true)
}

// changes wakes the watchers of a thread. If the change was on this server, the next notice has it. Callers hold the lock.
func (s *presence) changes(at threadRef, own bool) {
	for w := range s.watchers[at] {
		wake(w)
	}
	if own {
		s.changed[at] = struct{}{}
		wake(s.tell)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a token is already pending
	}
}

// in returns the agents in a thread.
func (s *presence) in(at threadRef) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	agents := slices.Collect(maps.Keys(s.here[at]))
	for _, seen := range s.there[at] {
		if time.Now().Before(seen.until) {
			agents = append(agents, seen.agents...)
		}
	}
	slices.Sort(agents)
	agents = slices.Compact(agents)
	return agents[:min(len(agents), maxPresent)]
}

// run sends notices until ctx ends.
func (s *presence) run(ctx context.Context, d *db.DB, log func(error)) {
	beat := time.NewTicker(s.lasts / 3)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			s.expire()
		case <-s.tell:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settleFor):
			}
		}
		if err := s.send(ctx, d); err != nil && ctx.Err() == nil {
			log(err) // the next beat repeats it
		}
	}
}

// expire deletes the expired notices of other servers, and puts all threads of this server into the next notice.
func (s *presence) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, servers := range s.there {
		for server, seen := range servers {
			if time.Now().After(seen.until) {
				delete(servers, server)
				s.changes(at, false)
			}
		}
		if len(servers) == 0 {
			delete(s.there, at)
		}
	}
	for at := range s.here {
		s.changed[at] = struct{}{}
	}
}

// send notifies the other servers of the threads that changed.
func (s *presence) send(ctx context.Context, d *db.DB) error {
	notices := s.notices()
	if len(notices) == 0 {
		return nil
	}
	return d.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		// Durability is not needed, because notices are repeated.
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		for _, n := range notices {
			if _, err := tx.Exec(ctx, "select pg_notify($1, $2)", presenceChannel, string(n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// notices returns the encoded notices of the threads that changed.
func (s *presence) notices() (texts [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := presenceNotice{Server: s.server}, 0
	flush := func() {
		if len(n.Places) > 0 {
			text, _ := json.Marshal(n) // cannot fail for strings
			texts = append(texts, text)
		}
		n.Places, size = nil, 0
	}
	for at := range s.changed {
		agents := slices.Sorted(maps.Keys(s.here[at]))
		one := presentAt{at, agents[:min(len(agents), maxPresent)]}
		text, _ := json.Marshal(one)
		if size+len(text) > maxNotice {
			flush()
		}
		n.Places, size = append(n.Places, one), size+len(text)+1
	}
	flush()
	clear(s.changed)
	return texts
}

// heard records a notice of another server.
func (s *presence) heard(payload string) error {
	var n presenceNotice
	if err := json.Unmarshal([]byte(payload), &n); err != nil || n.Server == "" {
		return fault.New(fault.Invalid, "a notice of presence has an unknown form", "")
	}
	if n.Server == s.server {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range n.Places {
		was := s.there[p.threadRef][n.Server]
		switch {
		case len(p.Agents) == 0:
			if delete(s.there[p.threadRef], n.Server); len(s.there[p.threadRef]) == 0 {
				delete(s.there, p.threadRef)
			}
		case s.there[p.threadRef] == nil:
			s.there[p.threadRef] = map[string]sighting{}
			fallthrough
		default:
			s.there[p.threadRef][n.Server] = sighting{p.Agents, time.Now().Add(s.lasts)}
		}
		if !slices.Equal(was.agents, p.Agents) {
			s.changes(p.threadRef, false)
		}
	}
	return nil
}
