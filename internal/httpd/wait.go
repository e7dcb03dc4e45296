package httpd

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// piece is how much of an answer is written at once, in bytes. The client must receive that much within a stall.
	piece = 64 << 10
	// large is the size from which a part of an answer counts as memory, in bytes.
	large = 64 << 10
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// patience limits how long a handler waits for its client in one direction. An HTTP/1 deadline can stay set, because it
// ends only calls that are waiting. An HTTP/2 deadline is set only when a wait takes too long, because it ends the
// stream even if nothing waits.
type patience struct {
	set     func(time.Time) error
	lasting bool

	mu      sync.Mutex
	until   time.Time
	waiting bool
	over    bool
	timer   *time.Timer
}

// start begins a wait, or extends it to a later end.
func (p *patience) start(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.waiting = true
	switch {
	case p.lasting:
		p.set(until)
	case p.timer == nil:
		p.timer = time.AfterFunc(time.Until(until), p.fire)
	default:
		p.timer.Reset(time.Until(until))
	}
	p.until = until
}

// stop ends a wait.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = false
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *patience) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting && !p.over && !time.Now().Before(p.until) {
		p.set(past)
	}
}

// done ends all waits and clears the deadline, because the server continues to read in order to notice when the client
// disconnects.
func (p *patience) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && p.lasting {
		p.set(time.Time{})
	}
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// end sets the last deadline, if given. Nothing may be set afterwards, because the connection no longer belongs to the
// request.
func (p *patience) end(last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if !p.over && !last.IsZero() {
		p.set(last)
	}
	p.over = true
}

// body is a request's body with a minimum rate.
type body struct {
	io.ReadCloser
	limits  Limits
	wait    patience
	started time.Time
	got     int64
	// read reports that all of it has arrived. A proxy may still read in a goroutine when its handler has returned.
	read atomic.Bool
}

func (b *body) Read(p []byte) (n int, err error) {
	now := time.Now()
	// From the first read, because the handler decides when that is.
	if b.started.IsZero() {
		b.started = now
	}
	b.wait.start(b.limits.deadline(now, b.started, b.got))
	n, err = b.ReadCloser.Read(p)
	b.wait.stop()
	b.got += int64(n)
	if errors.Is(err, io.EOF) {
		b.read.Store(true)
		b.wait.done()
	}
	return n, err
}

// Close does not wait. Otherwise the server would read the rest in order to reuse the connection.
func (b *body) Close() error {
	b.leave()
	return b.ReadCloser.Close()
}

// leave ends the wait for what was not read.
func (b *body) leave() {
	switch {
	case b.read.Load():
	case b.wait.lasting:
		b.wait.end(past)
	default:
		b.wait.end(time.Time{})
	}
}

// deadline returns when a transfer that began at began and has moved so many bytes must make progress.
func (l Limits) deadline(now, began time.Time, moved int64) time.Time {
	stall := now.Add(l.Stall)
	if slow := began.Add(l.Stall + time.Duration(moved)*time.Second/time.Duration(l.Rate)); slow.Before(stall) {
		return slow
	}
	return stall
}

// writer is an answer with a minimum rate.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  Limits
	request *http.Request
	wait    patience
	body    *body // nil if there is none

	begun, taken bool
	status       int
	began        time.Time
}

// Begun returns the status of an answer of a server made by [New], and when it began. Both are zero if it has not begun, or if w is
// not such an answer.
func Begun(w http.ResponseWriter) (status int, at time.Time) {
	for {
		switch next := w.(type) {
		case *writer:
			return next.status, next.began
		case interface{ Unwrap() http.ResponseWriter }:
			w = next.Unwrap()
		default:
			return 0, time.Time{}
		}
	}
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline does nothing, because this package sets the deadlines.
func (w *writer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, because this package sets the deadlines.
func (w *writer) SetWriteDeadline(time.Time) error { return nil }

// WriteHeader begins the answer. If the request's body was not read, the answer is the connection's last; otherwise the
// server would wait for the body before and after the answer.
func (w *writer) WriteHeader(status int) {
	if status >= 200 && !w.begun {
		w.begun, w.status, w.began = true, status, time.Now()
		if w.request.ProtoMajor == 1 && w.body != nil && !w.body.read.Load() {
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (n int, err error) {
	if len(p) > large {
		lease := w.limits.Memory.Try(w.limits.Credential(w.request.Header), int64(len(p)))
		if lease == nil {
			w.refuse(http.StatusServiceUnavailable)
			return 0, errBusy
		}
		defer lease.Release()
	}
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	for began := time.Now(); ; {
		w.hurry(began, int64(n+min(len(p), piece)))
		m, err := w.ResponseWriter.Write(p[:min(len(p), piece)])
		w.wait.stop()
		n, p = n+m, p[m:]
		if err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// errBusy is the error for a part of an answer that was not written because the memory for waiting answers is used up.
var errBusy = errors.New("the memory for answers that wait for their clients is used up")

// refuse answers that the client should try again later, if the answer has not begun.
func (w *writer) refuse(status int) {
	if !w.begun {
		h := w.Header()
		clear(h)
		h.Set("Retry-After", "5")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
	}
}

// hurry begins a wait for the client in an answer that began at began and will have so many bytes.
func (w *writer) hurry(began time.Time, bytes int64) {
	until := w.limits.deadline(time.Now(), began, bytes)
	// Set the deadline only when it is off by half a stall, because setting it costs a part of a write.
	if !w.wait.lasting || until.Sub(w.wait.until) > w.limits.Stall/2 {
		w.wait.start(until)
	}
}

// Flush sends what was written.
func (w *writer) Flush() { w.FlushError() }

// FlushError is Flush, for [http.ResponseController].
func (w *writer) FlushError() error {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	w.hurry(time.Now(), 0)
	defer w.wait.stop()
	return w.control.Flush()
}

// Hijack hands the connection over, without deadlines.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.control.Hijack()
	if err == nil {
		w.taken = true
		w.wait.end(time.Time{})
		if w.body != nil {
			w.body.wait.end(time.Time{})
		}
	}
	return conn, buffered, err
}

// end leaves the server a moment to send what is buffered, and none to read the rest of a body.
func (w *writer) end() {
	if w.taken {
		return
	}
	w.wait.end(time.Now().Add(w.limits.Stall))
	if w.body != nil {
		w.body.leave()
	}
}
