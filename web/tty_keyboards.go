package web

import (
	"sync"
	"time"
)

// keyboardLasts is how long a keyboard is kept without a request.
const keyboardLasts = 10 * time.Minute

// keyboards holds who has typed through this server. The zero value is ready to use.
type keyboards struct {
	mu sync.Mutex
	by map[ttyKey]*keyboard
}

// keyboard writes to one command on behalf of the tabs of a session.
type keyboard struct {
	mu   sync.Mutex // held during a request, so that two tabs do not write at the same position
	last time.Time  // guarded by the lock of keyboards
	tabs map[string]typed
}

// typed is what a tab has typed: all requests up to number, and bytes of the next one.
type typed struct {
	number int64
	bytes  int
}

// find returns the keyboard of a key, or nil.
func (ts *keyboards) find(key ttyKey) *keyboard {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	k := ts.by[key]
	if k != nil {
		k.last = time.Now()
	}
	return k
}

// add returns the keyboard of a key, which it makes if there is none.
func (ts *keyboards) add(key ttyKey) *keyboard {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	for other, t := range ts.by {
		if now.Sub(t.last) > keyboardLasts {
			delete(ts.by, other)
		}
	}
	if ts.by == nil {
		ts.by = map[ttyKey]*keyboard{}
	}
	t := ts.by[key]
	if t == nil {
		t = &keyboard{tabs: map[string]typed{}}
		ts.by[key] = t
	}
	t.last = now
	return t
}
