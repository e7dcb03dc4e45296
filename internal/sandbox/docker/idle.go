package docker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// The shortest and longest pause between two checks for idle boxes. The pause is a fraction of the time after which they are
// stopped.
const shortestIdleLook, longestIdleLook = 100 * time.Millisecond, time.Minute

// begin registers a program that is about to run in a box, after waiting for a stop in progress. The caller calls end when
// the program is done.
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

// usageOf returns the usage of a box. A box seen for the first time counts as used now. The caller holds mu.
func (p *provider) usageOf(ref string) *usage {
	u := p.used[ref]
	if u == nil {
		u = &usage{last: time.Now()}
		p.used[ref] = u
	}
	return u
}

// stopIdle stops idle boxes until the driver is closed. If another server begins to use a box while it is being stopped, that
// server starts it again.
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

// running returns the running boxes of this server's installation.
func (p *provider) running(ctx context.Context) ([]container.Summary, error) {
	p.mu.Lock()
	installation := p.installation
	p.mu.Unlock()
	if installation == "" {
		return nil, nil
	}
	return p.list(ctx, filter(remote.Filter(sandbox.Labels{Installation: installation})).Add("status", "running"))
}

// lookForIdle stops the idle boxes of this server's installation. If that fails, the next check tries again.
func (p *provider) lookForIdle(ctx context.Context) {
	found, err := p.running(ctx)
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
	maps.DeleteFunc(p.used, func(ref string, u *usage) bool { // stopped boxes need no record
		return u.programs == 0 && !slices.ContainsFunc(found, func(one container.Summary) bool { return one.ID == ref })
	})
}

// stopIfIdle stops a box in which nothing has run for the given time.
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
		_ = p.stop(ctx, ref) // the next check tries again
	}
	p.mu.Lock()
	u.stopping = nil
	p.mu.Unlock()
	close(stopped)
}

// quiet reports whether nothing runs in a box besides the programs of this server: process 1, and that of the door.
func (p *provider) quiet(ctx context.Context, ref string) bool {
	var running client.ContainerTopResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		running, err = p.engine.ContainerTop(ctx, ref, client.ContainerTopOptions{})
		return err
	})
	command := slices.IndexFunc(running.Titles, func(title string) bool { return title == "CMD" || title == "COMMAND" })
	return err == nil && command >= 0 && !slices.ContainsFunc(running.Processes, func(fields []string) bool {
		return len(fields) <= command || !strings.HasPrefix(fields[command], ownFolder+"/")
	})
}
