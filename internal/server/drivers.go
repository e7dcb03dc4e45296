package server

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The pauses before retries of a driver that could not start. They grow from the first to the longest. If somebody needs one
// of its sandboxes, the driver is retried when wantedPause has passed since the last try.
const (
	driverPause, longestDriverPause = 2 * time.Second, 5 * time.Minute
	wantedPause                     = 2 * time.Second
)

// localDriver is the name of the driver for sandboxes on this machine.
const localDriver = "local"

// driverStarts starts a sandbox driver. A driver that cannot start does not keep the server from starting, because everything
// else works. Only users of its sandboxes get the error. The cause may pass, such as a full disk, a missing runtime or an
// engine that is offline, so the start is retried.
type driverStarts struct {
	server *Server
	name   string
	start  func(context.Context) (sandbox.Driver, error)
	// rented is set for a provider's driver. If it reports missing settings, that needs no warning, and a retry would not
	// help.
	rented bool
	// wanted receives a token when somebody needs a driver that has not started.
	wanted chan struct{}
	// failed reports that the first start failed with a temporary error.
	failed bool
}

func (s *Server) driverStarts(name string, start func(context.Context) (sandbox.Driver, error)) *driverStarts {
	return &driverStarts{server: s, name: name, start: start, wanted: make(chan struct{}, 1)}
}

// first starts the driver for the first time, and registers it, or the reason why it is not ready.
func (d *driverStarts) first(ctx context.Context, ready map[string]sandbox.Driver, unavailable map[string]error) {
	driver, err := d.start(ctx)
	switch {
	case err != nil && d.rented && fault.CodeOf(err) != fault.Unavailable:
		unavailable[d.name] = err
		d.server.logger.DebugContext(ctx, "sandboxes of a provider are not set up", "driver", d.name, "reason", fault.From(err).Message)
	case err != nil:
		unavailable[d.name], d.failed = err, true
		d.report(ctx, err)
	default:
		ready[d.name] = driver
		d.server.health.watch(driver)
		d.server.onStop(func(stop context.Context) error { return d.server.stopDriver(stop, driver) })
	}
}

func (d *driverStarts) report(ctx context.Context, err error) {
	d.server.logger.WarnContext(ctx, "sandboxes of this kind cannot be used; their driver is started again later", "driver", d.name, "error", fault.From(err).Detail())
	d.server.health.degrade(d.name, "sandboxes of the driver "+d.name+" cannot be used: "+fault.From(err).Message)
}

// want signals that somebody needs the driver, which has not started.
func (d *driverStarts) want() {
	select {
	case d.wanted <- struct{}{}:
	default: // a token is already pending
	}
}

// keepTrying retries a failed start until it succeeds or the server stops.
func (d *driverStarts) keepTrying(boxes *sandbox.Resolver) {
	if !d.failed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	var driver sandbox.Driver
	d.server.onStop(func(stop context.Context) error {
		cancel()
		work.Wait()
		return d.server.stopDriver(stop, driver)
	})
	work.Go(func() { driver = d.retry(ctx, boxes) })
}

// retry retries a failed start, and returns the driver; nil if the server stops first.
func (d *driverStarts) retry(ctx context.Context, boxes *sandbox.Resolver) sandbox.Driver {
	for pause := driverPause; ; pause = min(2*pause, longestDriverPause) {
		if !d.wait(ctx, pause) {
			return nil
		}
		driver, err := d.start(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			d.report(ctx, err)
			boxes.DriverStarted(ctx, d.name, nil, err)
			continue
		}
		boxes.DriverStarted(ctx, d.name, driver, nil)
		d.server.health.restore(d.name)
		d.server.health.watch(driver)
		d.server.logger.InfoContext(ctx, "sandboxes of this kind can be used now", "driver", d.name)
		return driver
	}
}

// wait waits for the pause, or until somebody wants the driver, but at least wantedPause. It reports whether to continue.
func (d *driverStarts) wait(ctx context.Context, pause time.Duration) bool {
	for _, step := range []struct {
		time   time.Duration
		wanted <-chan struct{}
	}{{wantedPause, nil}, {pause - wantedPause, d.wanted}} {
		select {
		case <-ctx.Done():
			return false
		case <-step.wanted:
		case <-time.After(step.time):
		}
	}
	return true
}
