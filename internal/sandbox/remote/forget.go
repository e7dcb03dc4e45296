package remote

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

const (
	// forgetWithin is how long the record of a command that is to be forgotten waits for a request that takes it along.
	forgetWithin = 5 * time.Second
	// mostForgotten limits the commands that one request forgets along with its own work.
	mostForgotten = 500
)

// forgetNow forgets a command without waiting for it.
func (d *Driver) forgetNow(ref, id string) {
	d.forgetting.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), MaxRun)
		defer cancel()
		_ = d.Forget(ctx, ref, id) // a record left in the box does no harm
	})
}

// forgetLater forgets a command without waiting for it. The next request to its box does so, because a run for that alone costs
// as much as a command.
func (d *Driver) forgetLater(ref, id string) {
	d.dropInput(ref, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.forgotten[ref]
	if f == nil {
		f = &forgotten{}
		d.forgotten[ref] = f
	}
	f.ids, f.last = append(f.ids, id), time.Now()
	if !f.tended {
		f.tended = true
		d.forgetting.Go(func() { d.tendForgotten(ref, f) })
	}
}

// takeForgotten returns commands for a request to forget along with its own work. If the request fails, the caller calls
// keepForgotten.
func (d *Driver) takeForgotten(ref string) (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.forgotten[ref]; f != nil {
		n := min(len(f.ids), mostForgotten)
		ids, f.ids = f.ids[:n:n], f.ids[n:]
	}
	return ids
}

// keepForgotten leaves commands to the next request.
func (d *Driver) keepForgotten(ref string, ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.forgotten[ref]; f != nil { // otherwise the box is gone
		f.ids = append(f.ids, ids...)
	}
}

// tendForgotten forgets the commands of a box that no request has forgotten for a while, or at the end of the driver.
func (d *Driver) tendForgotten(ref string, f *forgotten) {
	for {
		d.mu.Lock()
		rest := time.Until(f.last.Add(forgetWithin))
		over := d.forgotten[ref] != f || len(f.ids) == 0 && (rest <= 0 || d.closed.Err() != nil)
		if over {
			f.tended = false
		}
		d.mu.Unlock()
		switch {
		case over:
			return
		case rest > 0 && wait(d.closed, rest) == nil:
		case !d.forgetRest(ref):
			d.mu.Lock()
			f.tended = false // a record that is left in the box does no harm, and the next request to it deletes it
			d.mu.Unlock()
			return
		}
	}
}

// forgetRest sends a request for the commands that are to be forgotten, but starts no box for that. It reports whether none is
// left.
func (d *Driver) forgetRest(ref string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), MaxRun)
	defer cancel()
	if asleep, err := d.provider.Asleep(ctx, ref); asleep || err != nil {
		return false
	}
	ids := d.takeForgotten(ref)
	if len(ids) == 0 {
		return true
	}
	_, err := d.call(ctx, ref, protocol.Request{Op: protocol.Forget, ID: ids[0], Forgotten: ids[1:]})
	if err != nil {
		d.keepForgotten(ref, ids)
	}
	return err == nil
}
