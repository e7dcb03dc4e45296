package docker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// The pauses between two looks for idle boxes: a part of the time after which they are stopped, within limits.
const shortestIdleLook, longestIdleLook = 100 * time.Millisecond, time.Minute

// usage is what this server does with a box.
type usage struct {
	programs int // that run in it
	last     time.Time
	// stopping is closed when the box has been stopped because nobody used it; nil if it is not being stopped.
	stopping chan struct{}
}

// begin notes that a program is going to run in a box. The caller calls end after it. It waits for a stop of the box.
func (p *provider) begin(ctx context.Context, ref string) (end func(), err error) {
	for {
		p.mu.Lock()
		u := p.usageOf(ref)
		if u.stopping == nil {
			u.programs++
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				u.programs--
				u.last = time.Now()
			}, nil
		}
		stopping := u.stopping
		p.mu.Unlock()
		select {
		case <-stopping:
		case <-ctx.Done():
			return nil, fault.From(ctx.Err())
		}
	}
}

// usageOf returns the usage of a box. One that is new counts as used now. The caller holds mu.
func (p *provider) usageOf(ref string) *usage {
	u := p.used[ref]
	if u == nil {
		u = &usage{last: time.Now()}
		p.used[ref] = u
	}
	return u
}

// stopIdle stops boxes in which nothing runs and that nobody has used for a while, until the driver is closed. A box that is
// stopped while another server begins to use it is started by that.
func (p *provider) stopIdle() {
	look := time.NewTicker(min(max(p.cfg.IdleStop/10, shortestIdleLook), longestIdleLook))
	defer look.Stop()
	for {
		select {
		case <-p.closed.Done():
			return
		case <-look.C:
			p.lookForIdle(p.closed)
		}
	}
}

// lookForIdle stops the idle boxes of this server's installation. What fails is tried again at the next look.
func (p *provider) lookForIdle(ctx context.Context) {
	p.mu.Lock()
	installation := p.installation
	p.mu.Unlock()
	if installation == "" {
		return
	}
	running := filter(remote.Filter(sandbox.Labels{Installation: installation})).Add("status", "running")
	found, err := p.list(ctx, running)
	if err != nil {
		return
	}
	for _, one := range found {
		after, err := time.ParseDuration(one.Labels[idleLabel])
		if err == nil {
			p.stopIfIdle(ctx, one.ID, after)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.used, func(ref string, u *usage) bool { // what does not run needs no memory
		return u.programs == 0 && !slices.ContainsFunc(found, func(one container.Summary) bool { return one.ID == ref })
	})
}

// stopIfIdle stops a box in which nothing runs and has not for a time.
func (p *provider) stopIfIdle(ctx context.Context, ref string, after time.Duration) {
	p.mu.Lock()
	u := p.usageOf(ref)
	if u.programs > 0 || time.Since(u.last) < after {
		p.mu.Unlock()
		return
	}
	stopped := make(chan struct{})
	u.stopping = stopped
	p.mu.Unlock()
	if p.quiet(ctx, ref) {
		_ = p.stop(ctx, ref) // it is tried again at the next look
	}
	p.mu.Lock()
	u.stopping = nil
	p.mu.Unlock()
	close(stopped)
}

// quiet reports whether nothing but process 1 runs in a box.
func (p *provider) quiet(ctx context.Context, ref string) bool {
	var running client.ContainerTopResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		running, err = p.engine.ContainerTop(ctx, ref, client.ContainerTopOptions{})
		return err
	})
	return err == nil && len(running.Processes) == 1
}
