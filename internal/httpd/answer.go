package httpd

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

const (
	// piece is how much of an answer is written at once, in bytes. The client must receive that much within a stall.
	piece = 64 << 10
	// large is the size from which a part of an answer counts as memory, in bytes.
	large = 64 << 10
)

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

// errBusy is the error for a part of an answer that cannot be written because the memory for waiting answers is used
// up.
var errBusy = errors.New("the memory for answers that wait for their clients is used up")

// refuse tells the client to try again later, unless the answer has begun.
func (w *writer) refuse(status int) {
	if !w.begun {
		h := w.Header()
		clear(h)
		h.Set("Retry-After", "5")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
	}
}

// hurry limits the wait for the client in an answer that began at began and has so many bytes after this write.
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

// end gives the server a moment to send buffered bytes, and no time to read the rest of a body.
func (w *writer) end() {
	if w.taken {
		return
	}
	w.wait.end(time.Now().Add(w.limits.Stall))
	if w.body != nil {
		w.body.leave()
	}
}
