package auth

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// recheckTimeout limits one check of many watches.
	recheckTimeout = 5 * time.Second
	// recheckRetry is the pause before a failed check is repeated, and before a credential that should have expired is
	// checked again.
	recheckRetry = 250 * time.Millisecond
)

// While returns a context that ends within a second after the context's principal may no longer do action to target:
// the credential was revoked or expired, the agent left the house, or the target was deleted. Its cause is then a
// [fault.Error]. The caller must have called [Auth.Authorize], and must call done at the end. While the database does
// not answer, the context does not end.
func (a *Auth) While(ctx context.Context, action Action, target Target) (_ context.Context, done context.CancelFunc) {
	p, err := PrincipalFrom(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	if err != nil {
		cancel(err)
		return ctx, func() {}
	}
	w := &watch{auth: a, p: p, action: action, target: target, cancel: cancel}
	a.rechecker.add(w)
	return context.WithValue(ctx, watchKey{}, w), func() {
		a.rechecker.remove(w)
		cancel(nil)
	}
}

// watchKey is the key of the [watch] in the context of [Auth.While].
type watchKey struct{}

// StillAllowed waits until it is certain whether ctx, a context of [Auth.While], was still allowed at a time, which
// must not be in the future. If it was not, it returns the reason, or the error of ctx if that ends first. A caller
// that receives data and calls it with the time of receipt, before it passes the data on, passes on nothing that any
// server wrote after the permission ended. For a context without [Auth.While] it returns nil.
//
// It usually costs one round trip that all callers of a server share. While a change of the permission is being checked,
// or the database does not answer, it waits.
func StillAllowed(ctx context.Context, at time.Time) error {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		return nil
	}
	if err := w.received(ctx, at); err != nil {
		return err
	}
	for doubt := w.auth.rechecker.doubt(w); doubt != nil; doubt = w.auth.rechecker.doubt(w) {
		select {
		case <-doubt:
		case <-ctx.Done():
			return cmp.Or(Refused(ctx), ctx.Err())
		}
	}
	if ctx.Err() != nil {
		return cmp.Or(Refused(ctx), ctx.Err())
	}
	return nil
}

// received waits until every change of permissions before a time has arrived, or schedules a check of the watch.
func (w *watch) received(ctx context.Context, at time.Time) error {
	for {
		received, moved := w.auth.facts.received(at)
		if received {
			return nil
		}
		if moved == nil { // the database is asked
			w.auth.rechecker.schedule(w)
			return nil
		}
		w.auth.prove()
		select {
		case <-moved:
		case <-ctx.Done():
			return cmp.Or(Refused(ctx), ctx.Err())
		}
	}
}

// prove requests a proof, soon, that all earlier changes were received.
func (a *Auth) prove() {
	if l := a.listens.Load(); l != nil {
		l.Prove()
	}
}

// Refused returns the reason why a context of [Auth.While] ended; nil if it ended for another reason.
func Refused(ctx context.Context) error {
	if refused, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok {
		return refused
	}
	return nil
}

// topics returns the topics whose changes may end the watch.
func (w *watch) topics() []string {
	topics := []string{agentTopic(w.p.Agent), w.target.topic()}
	if c := w.p.token; c != nil {
		topics = append(topics, signingKeyTopic(c.keyID))
		if c.Maker != "" {
			topics = append(topics, agentTopic(c.Maker))
		}
		if w.target != Thread(c.Thread) {
			topics = append(topics, Thread(c.Thread).topic())
		}
		return topics
	}
	return append(topics, credentialTopic(w.p.hash))
}

func (w *watch) membershipKey() membershipKey { return membershipKey{w.target, w.p.Agent} }

func newRechecker(a *Auth, every time.Duration) *rechecker {
	return &rechecker{auth: a, interval: every, watches: map[*watch]struct{}{}, byTopic: map[string]map[*watch]struct{}{}, due: map[*watch]struct{}{}}
}

// add starts a watch. The watch is checked unless facts in memory allow it, because a change since the answer of
// [Auth.Authorize] may have gone unnoticed.
func (l *rechecker) add(w *watch) {
	l.mu.Lock()
	l.watches[w] = struct{}{}
	for _, topic := range w.topics() {
		if l.byTopic[topic] == nil {
			l.byTopic[topic] = map[*watch]struct{}{}
		}
		l.byTopic[topic][w] = struct{}{}
	}
	if !w.p.until.IsZero() {
		w.expiry = time.AfterFunc(time.Until(w.p.until), func() { l.schedule(w) })
	}
	if !l.ticking {
		l.ticking = true
		time.AfterFunc(l.interval, l.tick)
	}
	l.mu.Unlock()
	if !l.auth.allowedFromMemory(w) {
		l.schedule(w)
	}
}

func (l *rechecker) remove(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, w)
	delete(l.due, w)
	w.settle()
	for _, topic := range w.topics() {
		if delete(l.byTopic[topic], w); len(l.byTopic[topic]) == 0 {
			delete(l.byTopic, topic)
		}
	}
	if w.expiry != nil {
		w.expiry.Stop()
	}
}

// doubt returns a channel that is closed when the pending check of a watch is done; nil if none is pending.
func (l *rechecker) doubt(w *watch) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.doubt == nil {
		return nil
	}
	return w.doubt
}

// settle ends the doubt about a watch. Callers hold the lock of the rechecker.
func (w *watch) settle() {
	if w.doubt != nil {
		close(w.doubt)
		w.doubt = nil
	}
}

// changed has the watches checked that depend on these topics. When it returns, their checks are pending.
func (l *rechecker) changed(topics []string) {
	if slices.Contains(topics, db.EverythingChanged) {
		l.schedule(l.watched()...)
		return
	}
	var all []*watch
	l.mu.Lock()
	for _, topic := range topics {
		all = slices.AppendSeq(all, maps.Keys(l.byTopic[topic]))
	}
	l.mu.Unlock()
	l.schedule(all...)
}

// tick checks all watches while notifications are not received. It repeats itself while there are watches.
func (l *rechecker) tick() {
	l.mu.Lock()
	l.ticking = len(l.watches) > 0
	again := l.ticking
	l.mu.Unlock()
	if !again {
		return
	}
	time.AfterFunc(l.interval, l.tick)
	if holds, _ := l.auth.facts.state(); !holds {
		l.schedule(l.watched()...)
	}
}

func (l *rechecker) watched() []*watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.watches))
}

// schedule makes the running goroutine, or a new one, check watches soon.
func (l *rechecker) schedule(watches ...*watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range watches {
		if _, on := l.watches[w]; on {
			l.due[w] = struct{}{}
			if w.doubt == nil {
				w.doubt = make(chan struct{})
			}
		}
	}
	if len(l.due) > 0 && !l.running {
		l.running = true
		go l.run()
	}
}

// run checks watches until none is due.
func (l *rechecker) run() {
	for {
		l.mu.Lock()
		due := slices.Collect(maps.Keys(l.due))
		clear(l.due)
		l.running = len(due) > 0
		l.mu.Unlock()
		if len(due) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), recheckTimeout)
		err := l.check(ctx, l.auth.db.Pool(), due)
		cancel()
		if err != nil {
			time.Sleep(recheckRetry)
			l.schedule(due...)
			continue
		}
		l.mu.Lock()
		for _, w := range due {
			if _, again := l.due[w]; !again { // otherwise another change came during the check
				w.settle()
			}
		}
		l.mu.Unlock()
	}
}

// check asks the database about watches and ends those that are no longer allowed.
func (l *rechecker) check(ctx context.Context, from query.DBTX, watches []*watch) error {
	refuse, err := l.auth.recheck(ctx, from, watches)
	if err != nil {
		// No watch ends, because while the database is unreachable nothing new can be read anyway.
		return err
	}
	for _, w := range watches {
		if err := refuse(w); err != nil {
			w.cancel(err)
		} else if w.expiry != nil && !time.Now().Before(w.p.until) {
			w.expiry.Reset(recheckRetry) // it has not expired yet by the database's clock
		}
	}
	return nil
}

// allowedFromMemory reports whether facts in memory allow a watch, without asking the database.
func (a *Auth) allowedFromMemory(w *watch) bool {
	if w.p.token == nil {
		if c, ok := lookUp[credential](a.facts, credentialTopic(w.p.hash)); !ok || c.ended(time.Now()) {
			return false
		}
	} else if _, ok := a.heldToken(w.p.token); !ok {
		return false
	}
	at, known := w.p.fixedMembership(w.target)
	if !known {
		at, known = a.heldMembership(w.membershipKey())
	}
	return known && w.p.authorize(w.action, w.target, at) == nil
}

// recheck looks up the credentials and memberships of all watches in at most three round trips. It returns a function
// that gives the answer of [Auth.Authenticate] and [Auth.Authorize] for each watch.
func (a *Auth) recheck(ctx context.Context, from query.DBTX, watches []*watch) (refuse func(*watch) error, err error) {
	// Each credential and membership is looked up once, under its index, because many watches share them.
	byHash, byToken, byMembership := map[string]int{}, map[string]int{}, map[membershipKey]int{}
	var hashes [][]byte
	var shown []*claims
	var keys []membershipKey
	for _, w := range watches {
		if c := w.p.token; c == nil {
			if index(byHash, string(w.p.hash)) {
				hashes = append(hashes, w.p.hash)
			}
		} else if index(byToken, c.ID) {
			shown = append(shown, c)
		}
		if _, known := w.p.fixedMembership(w.target); !known && index(byMembership, w.membershipKey()) {
			keys = append(keys, w.membershipKey())
		}
	}
	var credentials []credential
	var statuses []tokenStatus
	var memberships []membership
	if len(hashes) > 0 {
		if credentials, err = a.credentials(ctx, from, hashes); err != nil {
			return nil, err
		}
	}
	if len(shown) > 0 {
		if statuses, err = a.tokens(ctx, from, shown); err != nil {
			return nil, err
		}
	}
	if len(keys) > 0 {
		if memberships, err = a.memberships(ctx, from, keys); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	return func(w *watch) error {
		if c := w.p.token; c == nil {
			if status := credentials[byHash[string(w.p.hash)]].status; status != "ok" {
				return ended(status)
			}
		} else if now.After(c.ExpiresAt.Time) {
			return expired(c.Thread)
		} else if err := c.counts(statuses[byToken[c.ID]].status); err != nil {
			return err
		}
		at, known := w.p.fixedMembership(w.target)
		if !known {
			at = memberships[byMembership[w.membershipKey()]]
		}
		return w.p.authorize(w.action, w.target, at)
	}, nil
}

// index gives a key the next index if it has none, and reports whether the key is new.
func index[K comparable](of map[K]int, key K) (isNew bool) {
	if _, there := of[key]; there {
		return false
	}
	of[key] = len(of)
	return true
}
