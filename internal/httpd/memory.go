package httpd

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Memory limits the bytes that the server holds for clients, in total and for each client.
type Memory struct {
	total *semaphore.Weighted
	each  int64

	mu  sync.Mutex
	who map[string]*share
}

// share is one client's part of a Memory.
type share struct {
	free *semaphore.Weighted
	// users counts the leases that exist or are waited for. A share without any is removed, so that clients that left cost
	// nothing.
	users int
}

// NewMemory returns a Memory of total bytes, of which each client may hold at most each.
func NewMemory(total, each int64) *Memory {
	return &Memory{total: semaphore.NewWeighted(total), each: min(each, total), who: map[string]*share{}}
}

// Lease is a reservation of a part of a [Memory]. It is not safe for concurrent use.
type Lease struct {
	memory *Memory
	who    string
	share  *share
	bytes  int64
}

// Take reserves bytes for a client, limited to what each client may hold, because more would never be free. It waits
// until they are free or ctx ends.
func (m *Memory) Take(ctx context.Context, who string, bytes int64) (*Lease, error) {
	l := m.lease(who, bytes)
	// The client's share first, so that a client that waits for its own memory holds none of the others'.
	if err := l.share.free.Acquire(ctx, l.bytes); err != nil {
		m.leave(l)
		return nil, err
	}
	if err := m.total.Acquire(ctx, l.bytes); err != nil {
		l.share.free.Release(l.bytes)
		m.leave(l)
		return nil, err
	}
	return l, nil
}

// Try is Take without waiting: it returns nil if the bytes are not free.
func (m *Memory) Try(who string, bytes int64) *Lease {
	l := m.lease(who, bytes)
	if !l.share.free.TryAcquire(l.bytes) {
		m.leave(l)
		return nil
	}
	if !m.total.TryAcquire(l.bytes) {
		l.share.free.Release(l.bytes)
		m.leave(l)
		return nil
	}
	return l
}

func (m *Memory) lease(who string, bytes int64) *Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.who[who]
	if s == nil {
		s = &share{free: semaphore.NewWeighted(m.each)}
		m.who[who] = s
	}
	s.users++
	return &Lease{m, who, s, min(bytes, m.each)}
}

func (m *Memory) leave(l *Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.share.users--; l.share.users == 0 {
		delete(m.who, l.who)
	}
}

// Shrink releases all but the given number of bytes.
func (l *Lease) Shrink(bytes int64) {
	if l.share == nil {
		return
	}
	if back := l.bytes - bytes; back > 0 {
		l.memory.total.Release(back)
		l.share.free.Release(back)
		l.bytes = bytes
	}
}

// Release releases the whole lease. It may be called again, and on nil.
func (l *Lease) Release() {
	if l == nil || l.share == nil {
		return
	}
	l.Shrink(0)
	l.memory.leave(l)
	l.share = nil
}

// Crowd counts clients by name. The zero value is ready to use.
type Crowd struct {
	mu  sync.Mutex
	who map[string]int
}

// Enter counts a client, unless there are already most clients of its name: then ok is false. The caller must call
// leave at the end.
func (c *Crowd) Enter(who string, most int) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.who[who] >= most {
		return nil, false
	}
	if c.who == nil {
		c.who = map[string]int{}
	}
	c.who[who]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.who[who]--; c.who[who] == 0 {
			delete(c.who, who)
		}
	}, true
}
