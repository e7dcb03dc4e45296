package auth

import (
	"encoding/hex"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/arbe-dev/arbe/db"
)

const (
	// maxFacts limits the facts in memory. That many take about 30 MB.
	maxFacts = 100_000
	// leaseTime is how long facts are valid after the last proof that all changes were received. No change goes unnoticed
	// for longer.
	leaseTime = 700 * time.Millisecond
)

// facts are answers of the database about permission, in memory. Each is stored under the topic with which the database
// notifies of its change (migration 000006). Facts can only allow: without a fact, or if it would refuse, the database
// is asked. So nothing is remembered as missing, and new objects can be used at once.
//
// Three rules make facts as good as the database's own answers:
//   - A notification of a change deletes its fact. A change that this server makes deletes it before the change returns.
//   - An answer becomes a fact only if its topic has not changed since the query began (keep).
//   - Facts are valid only for leaseTime after the listening connection proved that all earlier changes were received
//     (prove). A new connection starts without facts (setListening).
type facts struct {
	mu      sync.Mutex
	byTopic *simplelru.LRU[string, any]
	// changed counts the changes of topics by the topics' hash, so that it needs no entry for each topic.
	changed [64]uint64
	changes uint64
	seed    maphash.Seed
	// listening reports that notifications are received. All changes before proven have been.
	listening bool
	proven    time.Time
	// moved is closed and replaced when listening or proven changes.
	moved chan struct{}
}

// A credential is a session or an API key.
type credential struct {
	agent, kind, house string
	// name is that of an API key.
	name string
	// status is "ok", or why the credential is not valid; empty if there is none.
	status string
	// until is when the credential expires; zero is never.
	until time.Time
}

// memberFacts are an agent's role in a house and since when the agent is a member, in microseconds.
type memberFacts struct {
	role   string
	joined int64
}

// targetFacts are the house of a target and, depending on its kind, an artifact's thread, an API key's holder, or the
// token epoch of a running thread.
type targetFacts struct {
	house, thread, holder string
	epoch                 int64
}

// The topics under which facts are stored.
func credentialTopic(hash []byte) string     { return "credential:" + hex.EncodeToString(hash) }
func memberTopic(house, agent string) string { return "member:" + house + "/" + agent }
func signingKeyTopic(id string) string       { return "signing_key:" + id }
func (t Target) topic() string               { return t.kind + ":" + t.id }

// tokenTopic is for the content of a thread token. The database does not notify of it, because it never changes.
func tokenTopic(hash []byte) string { return "token:" + hex.EncodeToString(hash) }

// agentTopic is for all memberships of an agent. This package derives its changes; the database does not notify of it.
func agentTopic(agent string) string { return "agent:" + agent }

// changedAgent returns the agent whose membership a topic is about.
func changedAgent(topic string) (agent string, ok bool) {
	if rest, is := strings.CutPrefix(topic, "member:"); is {
		return rest[strings.LastIndexByte(rest, '/')+1:], true
	}
	return "", false
}

func newFacts() *facts {
	held, _ := simplelru.NewLRU[string, any](maxFacts, nil) // fails only for a size below one
	return &facts{byTopic: held, seed: maphash.MakeSeed(), moved: make(chan struct{})}
}

// lookUp returns the fact stored under a topic.
func lookUp[T any](f *facts, topic string) (fact T, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holds(time.Now()) {
		return fact, false
	}
	held, _ := f.byTopic.Get(topic)
	fact, ok = held.(T)
	return fact, ok
}

// holds reports whether facts are valid now.
func (f *facts) holds(now time.Time) bool {
	if !f.listening || now.Sub(f.proven) >= leaseTime {
		return false
	}
	// Check the wall clock too, because the monotonic clock stops while the machine sleeps.
	asleep := now.Round(0).Sub(f.proven.Round(0))
	return asleep < leaseTime && asleep > -leaseTime
}

// state reports whether facts are valid now, and how many changes there have been.
func (f *facts) state() (holds bool, changes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holds(time.Now()), f.changes
}

// moment is the time of a query.
type moment struct {
	at      time.Time
	changed [64]uint64
}

// moment returns the current moment. Call it before the query whose answer keep stores, so that keep notices a change
// during the query.
func (f *facts) moment() moment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return moment{time.Now(), f.changed}
}

// keep stores the answer to a query begun at m, unless its topic has changed since.
func (f *facts) keep(m moment, topic string, fact any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.shard(topic); f.listening && f.changed[n] == m.changed[n] {
		f.byTopic.Add(topic, fact)
	}
}

// forget deletes the facts under these topics.
func (f *facts) forget(topics []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, topic := range topics {
		if topic == db.EverythingChanged {
			f.forgetAll()
			continue
		}
		f.changes++
		f.changed[f.shard(topic)]++
		f.byTopic.Remove(topic)
	}
}

func (f *facts) forgetAll() {
	f.changes++
	for n := range f.changed {
		f.changed[n]++
	}
	f.byTopic.Purge()
}

func (f *facts) shard(topic string) int {
	return int(maphash.String(f.seed, topic) % uint64(len(f.changed)))
}

// setListening reports that notifications are received from now on, or no longer. It deletes all facts, because changes
// may have been missed.
func (f *facts) setListening(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetAll()
	f.listening, f.proven = yes, time.Now()
	f.move()
}

// move wakes the callers that wait for a proof. Callers hold the lock.
func (f *facts) move() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// received reports whether all changes before a time have been received. If not, moved is closed when that may have
// changed; nil means that no notifications are received.
func (f *facts) received(at time.Time) (yes bool, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.listening {
		return false, nil
	}
	return f.proven.After(at), f.moved
}

// prove reports that all changes before this time were received.
func (f *facts) prove(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proven = at
	f.move()
}
