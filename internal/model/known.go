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

// List asks the endpoints whose models are not known yet, and fills in their lists. It waits for two seconds at most.
// For an endpoint that takes longer, or cannot be asked, it leaves m unchanged.
func (h *Houses) List(ctx context.Context, house string, m *Models) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	var each sync.WaitGroup
	for i := range m.Found {
		f := &m.Found[i]
		if f.Problem != nil {
			continue
		}
		each.Go(func() {
			if list, err := h.lists.get(ctx, house, f.Endpoint, listFresh); err == nil && len(list.Models) > 0 {
				f.Models = list.Models
			}
		})
	}
	each.Wait()
}

// CheckModel reports whether a model exists that a house is about to use. The error is a [fault.Invalid] if the ref is
// wrong, names an endpoint that the house does not have, or a model that its endpoint does not list. unverified says
// why it is unknown whether the model exists; empty if it exists.
//
// It asks the endpoint if its list is not known, for five seconds at most.
func (h *Houses) CheckModel(ctx context.Context, house, model string) (ref Ref, unverified string, err error) {
	m, err := h.Models(ctx, house)
	if err != nil {
		return Ref{}, "", err
	}
	return h.check(ctx, house, m, model)
}

func (h *Houses) check(ctx context.Context, house string, m Models, model string) (ref Ref, unverified string, err error) {
	if ref, err = ParseRef(model, m.names()...); err != nil {
		return Ref{}, "", err
	}
	f, problem := m.find(ref)
	switch {
	case problem != nil && f.Endpoint.Shared: // the operator must fix it
		return ref, f.Endpoint.Title() + " cannot be used now", nil
	case problem != nil:
		return ref, fault.From(problem).Message, nil
	}
	for _, fresh := range []time.Duration{listFresh, listAgain} {
		list, err := h.lists.get(ctx, house, f.Endpoint, fresh)
		failed, isError := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return Ref{}, "", ctx.Err()
		case isError && failed.unlisted:
			return ref, f.Endpoint.Title() + " does not list its models", nil
		case isError:
			return ref, f.Endpoint.Title() + " could not be asked for its models: " + failed.Brief(), nil
		case err != nil:
			return ref, f.Endpoint.Title() + " could not be asked for its models", nil
		case list.has(f.Endpoint, ref.Model):
			return ref, "", nil
		case !list.Complete:
			return ref, f.Endpoint.Title() + " does not list all its models", nil
		case fresh == listAgain: // the model may be newer than the list
			return Ref{}, "", list.noSuch(f.Endpoint, ref.Model)
		}
	}
	return ref, "", nil
}

// Admit returns the endpoint at which a house may call a model, and records the use of the secret with the key. The
// error is a [fault.Error] for people of the house: a [fault.NotFound] if, as far as is known within two seconds, the
// house has no such model.
func (h *Houses) Admit(ctx context.Context, house, model string) (Endpoint, Ref, error) {
	m, err := h.Models(ctx, house)
	if err != nil {
		return Endpoint{}, Ref{}, err
	}
	missing := func(err error) error {
		f := fault.From(err)
		return fault.New(fault.NotFound, f.Message, f.Next)
	}
	ref, err := ParseRef(model, m.names()...)
	if err != nil {
		return Endpoint{}, Ref{}, missing(err)
	}
	f, err := m.find(ref)
	if f.Endpoint.Name == "" {
		return Endpoint{}, Ref{}, missing(err)
	} else if err != nil {
		return Endpoint{}, Ref{}, err
	}
	asking, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	if _, _, err := h.check(asking, house, m, model); fault.CodeOf(err) == fault.Invalid {
		return Endpoint{}, Ref{}, missing(err)
	}
	if f.Secret != "" {
		if err := h.secrets.Used(ctx, house, f.Secret); err != nil {
			return Endpoint{}, Ref{}, err
		}
	}
	return f.Endpoint, ref, nil
}
