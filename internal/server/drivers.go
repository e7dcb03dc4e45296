package server

import (
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The pauses before a driver is started again that could not start: the first, and the longest, to which they grow. If
// somebody wants one of its sandboxes, it is tried as soon as wantedPause has passed since the last try.
const (
	driverPause, longestDriverPause = 2 * time.Second, 5 * time.Minute
	wantedPause                     = 2 * time.Second
)

// localDriver is the name of the driver for sandboxes on this machine.
const localDriver = "local"

// driverStarts starts the sandbox driver of this machine. A driver that cannot start does not keep the server from starting,
// because all else works: only who needs one of its sandboxes gets the error. What kept it from starting may pass, such as
// a full disk or a runtime that is not there yet, so it is tried again.
type driverStarts struct {
	server *Server
	// start starts the driver for sandboxes on this machine.
	start func(context.Context) (sandbox.Driver, error)
	// wanted receives a token when somebody wants a driver that has not started.
	wanted chan struct{}
	// failed reports that the first start failed.
	failed bool
}

// first starts the driver for the first time, and returns it if it is ready, or why it is not.
func (d *driverStarts) first(ctx context.Context) (ready map[string]sandbox.Driver, unavailable map[string]error) {
	driver, err := d.start(ctx)
	if err != nil {
		d.failed = true
		d.report(ctx, err)
		return map[string]sandbox.Driver{}, map[string]error{localDriver: err}
	}
	d.server.health.watch(driver)
	d.server.onStop(func(stop context.Context) error { return d.server.stopDriver(stop, driver) })
	return map[string]sandbox.Driver{localDriver: driver}, map[string]error{}
}

func (d *driverStarts) report(ctx context.Context, err error) {
	d.server.logger.WarnContext(ctx, "sandboxes of this kind cannot be used; their driver is started again later", "driver", localDriver, "error", fault.From(err).Detail())
	d.server.health.degrade(localDriver, "sandboxes of the driver "+localDriver+" cannot be used: "+fault.From(err).Message)
}

// want says that somebody wants a driver that has not started.
func (d *driverStarts) want(name string) {
	if name != localDriver {
		return // a provider is only missing its settings
	}
	select {
	case d.wanted <- struct{}{}:
	default: // a token is already pending
	}
}

// keepTrying starts what could not start, until it has started or the server stops.
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
	work.Go(func() {
		for pause := driverPause; driver == nil; pause = min(2*pause, longestDriverPause) {
			if !d.wait(ctx, pause) {
				return
			}
			started, err := d.start(ctx)
			if ctx.Err() != nil && err != nil {
				return
			}
			if err != nil {
				d.report(ctx, err)
				boxes.DriverStarted(ctx, localDriver, nil, err)
				continue
			}
			driver = started
			boxes.DriverStarted(ctx, localDriver, driver, nil)
			d.server.health.restore(localDriver)
			d.server.health.watch(driver)
			d.server.logger.InfoContext(ctx, "sandboxes of this kind can be used now", "driver", localDriver)
		}
	})
}

// wait waits for the pause, or until a driver is wanted but at least wantedPause. It reports whether to go on.
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
