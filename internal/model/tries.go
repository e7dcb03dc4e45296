package model

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// listFresh is how long a list is valid, and listFailed how long an endpoint that could not be asked is not asked
	// again.
	listFresh, listFailed = 10 * time.Minute, time.Minute
	// listAgain is the least age at which a list is requested again because it lacks a model.
	listAgain = 15 * time.Second
	// listTime is how long an endpoint may take to list its models, and listWait how long a mere display waits for it.
	listTime, listWait = 5 * time.Second, 2 * time.Second
	// maxLists is how many lists a server keeps, and maxAsking how many endpoints of a house it asks at once.
	maxLists, maxAsking = 500, 6
)

// A person, and a house, may try triesAtOnce keys at once, and then one more each tryEvery, at each server of the
// installation. Otherwise the installation would find out for anybody which of many keys are valid.
const (
	triesAtOnce = 10
	tryEvery    = 10 * time.Second
	// maxTriers limits how many a server remembers. It forgets those that have tried nothing for a while.
	maxTriers = 10_000
)

// errBusy is the reason why an endpoint is not asked.
var errBusy = errors.New("other servers of the house are being asked")

// lists holds the lists of endpoints' models. Each list is requested by one caller at a time. It is safe for concurrent
// use.
type lists struct {
	ask Asker

	mu     sync.Mutex
	kept   map[[32]byte]*keptList
	asking map[string]int // by house
}

type keptList struct {
	list   Listing
	err    error
	at     time.Time
	used   time.Time
	asking chan struct{} // closed when the request in progress ends; nil if there is none
}

// listKey distinguishes the endpoints of a house. Those of the installation are the same for all houses.
func listKey(house string, e Endpoint) ([32]byte, string) {
	if e.Shared {
		house = ""
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", house, e.Provider, e.BaseURL, e.Dialect, e.Key)), house
}

// put stores a list that was just received.
func (l *lists) put(house string, e Endpoint, list Listing) {
	key, _ := listKey(house, e)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.of(key)
	k.list, k.err, k.at = list, nil, time.Now()
}

// of returns the slot of a list, and creates it if necessary.
func (l *lists) of(key [32]byte) *keptList {
	k := l.kept[key]
	if k == nil {
		if l.kept == nil {
			l.kept, l.asking = map[[32]byte]*keptList{}, map[string]int{}
		}
		for len(l.kept) >= maxLists {
			var oldest [32]byte
			var at time.Time
			for key, k := range l.kept {
				if at.IsZero() || k.used.Before(at) {
					oldest, at = key, k.used
				}
			}
			delete(l.kept, oldest)
		}
		k = new(keptList)
		l.kept[key] = k
	}
	k.used = time.Now()
	return k
}

// get returns the list of an endpoint. It requests the list if it is older than fresh, and waits at most until ctx
// ends. The error is that of [Asker.Models], or the context's.
func (l *lists) get(ctx context.Context, house string, e Endpoint, fresh time.Duration) (Listing, error) {
	key, house := listKey(house, e)
	l.mu.Lock()
	k := l.of(key)
	age := time.Since(k.at)
	switch {
	case k.asking != nil:
	case k.err == nil && age < fresh, k.err != nil && age < listFailed:
		defer l.mu.Unlock()
		return k.list, k.err
	case l.asking[house] >= maxAsking:
		defer l.mu.Unlock()
		return Listing{}, errBusy
	default:
		k.asking = make(chan struct{})
		l.asking[house]++
		go l.look(k, house, e)
	}
	asking := k.asking
	l.mu.Unlock()
	select {
	case <-asking:
	case <-ctx.Done():
		return Listing{}, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.list, k.err
}

// look asks an endpoint, even after its caller has left, because others may wait for the list.
func (l *lists) look(k *keptList, house string, e Endpoint) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), listTime, errIdle)
	defer cancel()
	list, err := l.ask.Models(ctx, e)
	if e.Shared { // hides models that the operator's account created for itself
		list.Models = slices.DeleteFunc(list.Models, func(id string) bool { return strings.HasPrefix(id, "ft:") })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.list, k.err, k.at = list, err, time.Now()
	close(k.asking)
	k.asking = nil
	if l.asking[house]--; l.asking[house] == 0 {
		delete(l.asking, house)
	}
}

// Asker asks endpoints about themselves. [*Client] is one.
type Asker interface {
	Models(context.Context, Endpoint) (Listing, error)
	Try(context.Context, Endpoint) (Trial, error)
}

// tries limits how often keys are tried. The zero value is ready for use.
type tries struct {
	mu  sync.Mutex
	who map[string]*rate.Limiter
}

func (t *tries) take(scope db.Scope) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.forget(now)
	if t.who == nil {
		t.who = map[string]*rate.Limiter{}
	}
	both := []string{"house " + scope.House, "person " + scope.Agent}
	for _, who := range both {
		l := t.who[who]
		if l == nil {
			if len(t.who) >= maxTriers+len(both) {
				return tooMany()
			}
			l = rate.NewLimiter(rate.Every(tryEvery), triesAtOnce)
			t.who[who] = l
		}
		if l.TokensAt(now) < 1 {
			return tooMany()
		}
	}
	for _, who := range both {
		t.who[who].AllowN(now, 1)
	}
	return nil
}

// forget removes those whose allowance is full again, once there are many.
func (t *tries) forget(now time.Time) {
	if len(t.who) < maxTriers {
		return
	}
	for who, l := range t.who {
		if l.TokensAt(now) >= triesAtOnce {
			delete(t.who, who)
		}
	}
}

func tooMany() error {
	return fault.New(fault.Exhausted, "too many keys and servers were tried in a short time", "nothing was changed; wait a minute, and try again; "+untried)
}

// untried says how to continue without a trial.
const untried = "to store it untried: --no-check, or skip_check"

// wanted is why nothing was tried if the caller asked for that.
const wanted = "as you asked"
