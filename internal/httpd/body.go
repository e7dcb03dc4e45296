package httpd

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

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

// leave ends the wait for the unread rest.
func (b *body) leave() {
	switch {
	case b.read.Load():
	case b.wait.lasting:
		b.wait.end(past)
	default:
		b.wait.end(time.Time{})
	}
}
