package transcript

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// keptFor is how long a message that was read is kept for the other pages that show it. It is short, because the message
	// may be deleted meanwhile. keptBytes and maxKept limit the memory for kept messages.
	keptFor            = 2 * time.Second
	keptBytes, maxKept = 64 << 10, 100
)

// Messages reads changed messages for the live pages of a server. All pages that show a message share one read of it, so a
// reaction costs one read, however many pages show it. The zero value is ready for use, and safe for concurrent use.
type Messages struct {
	mu    sync.Mutex
	reads map[messageKey]*messageRead
}

// Log reads the entries of a thread.
type Log interface {
	List(context.Context, *arbev1.ListRequest) (*arbev1.ListResponse, error)
}

type messageKey struct {
	thread string
	seq    int64
}

// messageRead is a read of a message. Its results are set before done is closed.
type messageRead struct {
	done chan struct{}
	// message is nil if there is no such entry. upto is the position of the last entry whose change it has.
	message *arbev1.Entry
	upto    int64
	err     error
}

// At returns the entry at a position as it is after the entry at since, or later. It returns nil if there is no such entry. The
// caller must have the right to read the thread, and must not change the entry, because callers share reads.
func (m *Messages) At(ctx context.Context, log Log, thread string, seq, since int64) (*arbev1.Entry, error) {
	key := messageKey{thread, seq}
	for {
		m.mu.Lock()
		r := m.reads[key]
		if r == nil {
			r = &messageRead{done: make(chan struct{})}
			if m.reads == nil {
				m.reads = map[messageKey]*messageRead{}
			}
			m.reads[key] = r
			m.mu.Unlock()
			m.read(ctx, log, key, r)
			return r.message, r.err // the reader knows of since, so the log has it
		}
		m.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err == nil && r.upto >= since {
			return r.message, nil
		}
		m.forget(key, r) // it began too early, or failed
	}
}

// read makes a read and keeps it for a while.
func (m *Messages) read(ctx context.Context, log Log, key messageKey, r *messageRead) {
	kept := false
	defer func() {
		if !kept {
			m.forget(key, r)
		}
		close(r.done)
	}()
	res, err := log.List(ctx, &arbev1.ListRequest{ThreadId: key.thread, After: key.seq - 1, Limit: 1})
	if r.err = err; err != nil {
		return
	}
	if r.upto = res.Tail; len(res.Entries) > 0 && res.Entries[0].Seq == key.seq {
		r.message = res.Entries[0]
	}
	m.mu.Lock()
	kept = len(m.reads) <= maxKept && proto.Size(r.message) <= keptBytes
	m.mu.Unlock()
	if kept {
		time.AfterFunc(keptFor, func() { m.forget(key, r) })
	}
}

func (m *Messages) forget(key messageKey, r *messageRead) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reads[key] == r {
		delete(m.reads, key)
	}
}
