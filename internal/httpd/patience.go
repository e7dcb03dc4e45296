package httpd

import (
	"sync"
	"time"
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
