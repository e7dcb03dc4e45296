package model

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"
)

// Client calls models. The zero Client has the defaults. Its fields must not change after its first call; its methods
// may be called concurrently, and share connections.
type Client struct {
	// HeaderTimeout is how long a provider may take to begin its response, and IdleTimeout how long it may be silent
	// within it. Default to 3 and 2 minutes. How long an answer takes altogether is limited by the caller's context.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	// MinRate is how fast an answer must grow, in bytes per second, including thinking. Defaults to 16, or to 2 at
	// addresses that the operator named, which may be small machines. An answer may be slower for SlowTime in total,
	// which defaults to 5 minutes and recovers while the answer is faster.
	MinRate  float64
	SlowTime time.Duration
	// MaxAnswer is the largest size of an answer, in bytes of its stored JSON, with calls and signatures. The answer
	// then ends as if it had reached its limit of tokens. Defaults to 2 MiB.
	MaxAnswer int
	// Observe is called when a call of [Client.Stream] or [Client.Forward] has ended. It must be quick. Defaults to nil.
	Observe func(Call)

	once   sync.Once
	public http.RoundTripper
	open   http.RoundTripper
}

// wire returns the connection of a new call.
func (c *Client) wire(e Endpoint, cancel context.CancelCauseFunc) *wire {
	c.once.Do(func() { c.public, c.open = publicTransport(), openTransport() })
	w := &wire{base: c.public, endpoint: e, cancel: cancel, header: c.Patience(false), idle: c.Patience(true),
		size: func() int { return 0 }}
	rate := cmp.Or(c.MinRate, 16)
	if e.Trusted {
		w.base, rate = c.open, cmp.Or(c.MinRate, 2)
	}
	w.patience = allow(cmp.Or(c.SlowTime, 5*time.Minute).Seconds(), 1/rate)
	return w
}

// Patience returns how long a provider may be silent before its call ends: before its response, or within it.
func (c *Client) Patience(begun bool) time.Duration {
	if begun {
		return cmp.Or(c.IdleTimeout, 2*time.Minute)
	}
	return cmp.Or(c.HeaderTimeout, 3*time.Minute)
}
