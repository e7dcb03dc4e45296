package httpd

import (
	"net/http"
	"time"
)

// Limits restrict what a client may use. The zero value of a field means its default.
type Limits struct {
	// Header is how long the header of a request may take to arrive. Defaults to 10 seconds.
	Header time.Duration
	// Idle is how long a connection may be without a request. Defaults to 2 minutes.
	Idle time.Duration
	// Stall is how long a client may send nothing of a body, or receive nothing of an answer. Defaults to 20 seconds.
	Stall time.Duration
	// Rate is the minimum rate at which a body must arrive and a part of an answer must be received, in bytes per
	// second, with one Stall of tolerance. Defaults to 16 KiB.
	Rate int64
	// MaxBody limits the body of every request, in bytes. Handlers have lower limits of their own. Defaults to 32 MiB.
	MaxBody int64
	// Credential returns the credential in a request's header, valid or not, or "" if the request has none. It must
	// return the same text for the same credential, however that is written. Defaults to the headers Authorization and
	// Cookie as sent.
	Credential func(http.Header) string
	// Requests limits the concurrent requests with one credential; a further one is answered with 429. Defaults to
	// 8,192.
	Requests int
	// Memory limits the large parts of answers that wait for their clients. Defaults to 256 MiB in total, and a quarter
	// of it for each credential.
	Memory *Memory
}

// withDefaults returns l with every field set.
func (l Limits) withDefaults() Limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.Header, 10*time.Second)
	set(&l.Idle, 2*time.Minute)
	set(&l.Stall, 20*time.Second)
	if l.Rate == 0 {
		l.Rate = 16 << 10
	}
	if l.MaxBody == 0 {
		l.MaxBody = 32 << 20
	}
	if l.Requests == 0 {
		l.Requests = 8 << 10
	}
	if l.Credential == nil {
		l.Credential = credential
	}
	if l.Memory == nil {
		l.Memory = NewMemory(256<<20, 64<<20)
	}
	return l
}

// credential is the default of [Limits.Credential].
func credential(h http.Header) string {
	if bearer := h.Get("Authorization"); bearer != "" {
		return bearer
	}
	return h.Get("Cookie")
}

// deadline returns when a transfer that began at began and has moved so many bytes must make progress.
func (l Limits) deadline(now, began time.Time, moved int64) time.Time {
	stall := now.Add(l.Stall)
	if slow := began.Add(l.Stall + time.Duration(moved)*time.Second/time.Duration(l.Rate)); slow.Before(stall) {
		return slow
	}
	return stall
}
