package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// recheckWithin bounds one look at all who read on.
const recheckWithin = 5 * time.Second

// While returns a context that ends, with a [fault.Error] as its cause, some [Config.Recheck] after the context's
// principal could no longer do action to target: the credential was revoked or has expired, the agent left the
// house. The caller has asked [Auth.May] and calls done in the end. However many wait, the database is asked
// once an interval for all of them.
func (a *Auth) While(ctx context.Context, action Action, target Target) (_ context.Context, done context.CancelFunc) {
	p, err := Who(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	if err != nil {
		cancel(err)
		return ctx, func() {}
	}
	w := &watch{p: p, action: action, target: target, cancel: cancel}
	a.live.add(w)
	return ctx, func() {
		a.live.remove(w)
		cancel(nil)
	}
}

// Refused is why a context of [Auth.While] ended; nil when it ended for another reason.
func Refused(ctx context.Context) error {
	if refused, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok {
		return refused
	}
	return nil
}

// watch is someone who reads on.
type watch struct {
	p      Principal
	action Action
	target Target
	cancel context.CancelCauseFunc
}

// live is everyone who reads on through this server. A timer runs while there is someone.
type live struct {
	auth  *Auth
	every time.Duration

	mu      sync.Mutex
	watches map[*watch]struct{}
}

func (l *live) add(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watches == nil {
		l.watches = map[*watch]struct{}{}
		time.AfterFunc(l.every, l.round)
	}
	l.watches[w] = struct{}{}
}

func (l *live) remove(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, w)
}

// round asks about everyone, and comes again.
func (l *live) round() {
	l.mu.Lock()
	if len(l.watches) == 0 {
		l.watches = nil
		l.mu.Unlock()
		return
	}
	all := make([]*watch, 0, len(l.watches))
	for w := range l.watches {
		all = append(all, w)
	}
	l.mu.Unlock()
	defer time.AfterFunc(l.every, l.round)

	ctx, cancel := context.WithTimeout(context.Background(), recheckWithin)
	defer cancel()
	refuse, err := l.auth.recheck(ctx, all)
	if err != nil {
		return // the database is away: nothing new comes, and the next round asks again
	}
	for _, w := range all {
		if err := refuse(w); err != nil {
			w.cancel(err)
		}
	}
}

// recheck looks up, in at most three queries, how all credentials and places of the watches stand, and returns
// what [Auth.Authenticate] and [Auth.May] would say of each watch.
func (a *Auth) recheck(ctx context.Context, all []*watch) (refuse func(*watch) error, err error) {
	// Credentials and places are many watches' at once: each is asked about once, under its index.
	hashes, tokens, places := map[string]int{}, map[string]int{}, map[stand]int{}
	var hashList [][]byte
	var tokenList query.StandingOfTokensParams
	var kinds, ids, agents []string // of the places
	for _, w := range all {
		if c := w.p.token; c == nil {
			if index(hashes, string(w.p.hash)) {
				hashList = append(hashList, w.p.hash)
			}
		} else if index(tokens, c.ID) {
			t := &tokenList
			t.KeyIds, t.HouseIds, t.ThreadIds = append(t.KeyIds, w.p.keyID), append(t.HouseIds, c.House), append(t.ThreadIds, c.Thread)
			t.AgentIds, t.Epochs, t.JoinedAt = append(t.AgentIds, c.Subject), append(t.Epochs, c.Epoch), append(t.JoinedAt, time.UnixMicro(c.Joined))
		}
		if _, known := w.p.place(w.target); !known && index(places, w.stand()) {
			kinds, ids, agents = append(kinds, w.target.kind), append(ids, w.target.id), append(agents, w.p.Agent)
		}
	}

	hashStands, tokenStands, at := make([]string, len(hashList)), make([]string, len(tokens)), make([]place, len(places))
	if len(hashes) > 0 {
		rows, err := a.q.StandingOfHashes(ctx, a.db.Pool(), hashList)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			hashStands[row.Which-1] = row.Standing
		}
	}
	if len(tokens) > 0 {
		rows, err := a.q.StandingOfTokens(ctx, a.db.Pool(), tokenList)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			tokenStands[row.Which-1] = row.Standing
		}
	}
	if len(places) > 0 {
		rows, err := a.q.PlacesOf(ctx, a.db.Pool(), kinds, ids, agents)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			at[row.Which-1] = place{row.HouseID, row.Role}
		}
	}

	now := time.Now()
	return func(w *watch) error {
		if c := w.p.token; c == nil {
			if standing := hashStands[hashes[string(w.p.hash)]]; standing != "ok" {
				return ended(standing)
			}
		} else if now.After(c.ExpiresAt.Time) {
			return expired(c.Thread)
		} else if err := stands(c.Thread, tokenStands[tokens[c.ID]]); err != nil {
			return err
		}
		here, known := w.p.place(w.target)
		if !known {
			here = at[places[w.stand()]]
		}
		return w.p.may(w.action, w.target, here)
	}, nil
}

// stand is who is where.
type stand struct {
	target Target
	agent  string
}

func (w *watch) stand() stand { return stand{w.target, w.p.Agent} }

// index gives a key the next index, and tells whether it is a new one.
func index[K comparable](of map[K]int, key K) (isNew bool) {
	if _, there := of[key]; there {
		return false
	}
	of[key] = len(of)
	return true
}
