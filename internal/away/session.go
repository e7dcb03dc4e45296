package away

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// room is how many unfetched bytes a session holds in each direction. When they are full, the program waits.
const room = 1 << 20

type sessionKey struct{ house, id string }

// session is a command, a file or a connection that another server uses.
type session struct {
	ctx    context.Context
	cancel context.CancelFunc
	// abandoned ends the session when calls for it stop.
	abandoned *time.Timer

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each change
	out     [2]buffer
	in      buffer
	done    bool // nothing is written to out any more
	err     error
	result  *sandbox.Result
	woken   *sandbox.Woken
}

// buffer holds the bytes of an output from a position on.
type buffer struct {
	from   int64
	data   []byte
	closed bool
}

func (b *buffer) end() int64 { return b.from + int64(len(b.data)) }

// drop discards the bytes before a position.
func (b *buffer) drop(before int64) {
	n := min(max(before-b.from, 0), int64(len(b.data)))
	b.from, b.data = b.from+n, b.data[n:]
}

// update changes the session and wakes everybody who waits for a change.
func (s *session) update(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ready returns true, with the session locked; ready is called with the lock. It returns false if ctx or
// the session ends first.
func (s *session) await(ctx context.Context, ready func() bool) bool {
	s.mu.Lock()
	for !ready() {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-s.ctx.Done():
			return false
		}
		s.mu.Lock()
	}
	return true
}

// output writes to one of the outputs, and waits while its buffer is full.
type output struct {
	s *session
	n int
}

// Write fails when the session ends.
func (w output) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		var piece []byte
		if !w.s.await(w.s.ctx, func() bool { return len(w.s.out[w.n].data) < room }) {
			return n, io.ErrClosedPipe
		}
		b := &w.s.out[w.n]
		piece = p[:min(len(p), room-len(b.data))]
		b.data = append(b.data, piece...)
		w.s.mu.Unlock()
		w.s.update(func() {})
		n, p = n+len(piece), p[len(piece):]
	}
	return n, nil
}

// copy copies everything that it reads to the first output.
func (s *session) copy(from io.ReadCloser) {
	stop := context.AfterFunc(s.ctx, func() { from.Close() }) // ends a Read
	_, err := io.Copy(output{s, 0}, from)
	s.update(func() { s.done, s.err = true, err })
	if _, both := from.(sandbox.Conn); !both && stop() { // a connection stays open for its other direction
		from.Close()
	}
}

// feed writes pushed bytes to a connection.
func (s *session) feed(to sandbox.Conn) {
	for {
		if !s.await(s.ctx, func() bool { return len(s.in.data) > 0 || s.in.closed }) {
			return
		}
		piece := s.in.data
		s.mu.Unlock()
		if len(piece) == 0 {
			_ = to.CloseWrite() // the other side may have left
			return
		}
		_, err := to.Write(piece)
		s.update(func() {
			s.in.drop(s.in.from + int64(len(piece)))
			s.in.closed = s.in.closed || err != nil
		})
		if err != nil {
			return
		}
	}
}

// pull returns the outputs after the positions that the caller has.
func (s *session) pull(ctx context.Context, c call) (r reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	s.drop(c)
	if !s.await(ctx, func() bool { return s.done || len(s.out[0].data)+len(s.out[1].data) > 0 }) {
		if s.ctx.Err() != nil {
			return r, errLost
		}
		return r, nil
	}
	defer s.mu.Unlock()
	r.Done = s.done
	for i, b := range s.out {
		if b.from != c.At[i] {
			return reply{}, errLost // this caller does not have the bytes before
		}
		n := min(len(b.data), mostPiece/2)
		r.Out[i] = append([]byte(nil), b.data[:n]...)
		r.Done = r.Done && n == len(b.data)
	}
	if r.Done && len(r.Out[0])+len(r.Out[1]) == 0 {
		err = s.err
	}
	if r.Done && s.err != nil && err == nil {
		r.Done = false // the next call returns the error
	}
	r.Result, r.Woken = s.result, s.woken
	return r, err
}

// drop drops the output that a caller has.
func (s *session) drop(c call) {
	s.update(func() {
		for i := range s.out {
			s.out[i].drop(c.At[i])
		}
	})
}

// push takes bytes for the program.
func (s *session) push(ctx context.Context, c call) (r reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	at := c.At[0]
	if s.await(ctx, func() bool { return s.in.closed || len(s.in.data) < room || at < s.in.end() }) {
		s.mu.Unlock()
	}
	s.update(func() {
		skip := s.in.end() - at
		switch {
		case skip < 0:
			err = errLost
		case s.in.closed && skip < int64(len(c.Data)):
			err = fault.New(fault.Unavailable, "the program in the sandbox reads no more", "connect again")
		case len(s.in.data) < room && skip <= int64(len(c.Data)):
			s.in.data = append(s.in.data, c.Data[skip:]...)
			s.in.closed = s.in.closed || c.Last
		}
		r.Accepted = s.in.end()
	})
	return r, err
}
