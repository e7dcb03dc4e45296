package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/inbox"
)

// claimed is a device that a sweep notifies, with the houses that may have something for it.
type claimed struct {
	id, agent string
	sealed    []byte
	failures  int
	houses    []string
	// until is the time before which a need must have begun.
	until time.Time
}

// sweepDevices notifies devices. A device waits for another one at most as long as a push service may take to answer.
func (p *Pusher) sweepDevices(ctx context.Context) error {
	rows, err := p.q.ClaimPushDevices(ctx, p.DB.Pool(), p.Wait.Seconds(), lease.Seconds(), batch)
	if err != nil {
		return db.Explain(err)
	}
	var devices []*claimed
	for _, r := range rows {
		if n := len(devices); n == 0 || devices[n-1].id != r.ID {
			devices = append(devices, &claimed{id: r.ID, agent: r.AgentID, sealed: r.Sealed, failures: int(r.Failures), until: r.Until})
		}
		last := devices[len(devices)-1]
		last.houses = append(last.houses, r.HouseID)
	}
	limit := make(chan struct{}, 8)
	for _, d := range devices {
		limit <- struct{}{}
		if ctx.Err() != nil {
			<-limit
			break
		}
		go func() {
			defer func() { <-limit }()
			if err := p.notify(ctx, d); err != nil {
				p.Logger.WarnContext(ctx, "a device was not notified of what needs its person", "device", d.id, "agent", d.agent, "error", err)
			}
		}()
	}
	for range cap(limit) {
		limit <- struct{}{}
	}
	return ctx.Err()
}

// notify notifies a device of the news of all its houses.
func (p *Pusher) notify(ctx context.Context, d *claimed) error {
	person := db.Scope{Agent: d.agent}
	var s Settings
	err := p.DB.In(ctx, person, func(tx pgx.Tx) (err error) {
		s, err = p.settingsTx(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	now := p.Now()
	if ends := s.Quiet.Ends(now); !ends.IsZero() {
		return p.release(ctx, person, d, ends.Sub(now), false)
	}
	to, err := p.open(d.agent, d.sealed)
	if err != nil {
		return errors.Join(err, p.drop(ctx, person, d))
	}
	notified := false
	for _, house := range d.houses {
		sent, err := p.notifyOf(ctx, db.Scope{House: house, Agent: d.agent}, d, to)
		notified = notified || sent
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.gone {
			return p.drop(ctx, person, d)
		}
		if err != nil {
			pause := backOff(d.failures, err)
			d.failures++
			return errors.Join(err, p.release(ctx, person, d, pause, notified))
		}
	}
	d.failures = 0
	return p.release(ctx, person, d, 0, notified)
}

// notifyOf notifies a device of the news of a house.
func (p *Pusher) notifyOf(ctx context.Context, scope db.Scope, d *claimed, to Address) (sent bool, err error) {
	list, err := p.news(ctx, scope, d)
	if err != nil {
		return false, err
	}
	for _, n := range list {
		if err := p.send(ctx, to, n); err != nil {
			return sent, err
		}
		sent = true
	}
	return sent, p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		return p.q.AdvancePush(ctx, tx, scope.House, d.until, d.id)
	})
}

// news returns the needs of a house of which the device has not been notified, oldest first.
func (p *Pusher) news(ctx context.Context, scope db.Scope, d *claimed) (list []Notification, err error) {
	var since time.Time
	err = p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		since, err = p.q.PushPosition(ctx, tx, scope.House, d.id)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &refusedError{gone: true} // removed meanwhile
	}
	if err != nil {
		return nil, err
	}
	needs, err := p.Inboxes.Pending(ctx, scope)
	if err != nil {
		return nil, err
	}
	needs = slices.DeleteFunc(needs, func(n inbox.Need) bool { return !n.At.After(since) || n.At.After(d.until) })
	if more := len(needs) - most; more > 0 {
		needs = needs[:most]
		list = append(list, Notification{Title: fmt.Sprintf("%d more threads need you", more), URL: "/houses/" + scope.House, Tag: "more-" + scope.House})
	}
	slices.Reverse(needs)
	for _, n := range needs {
		list = append(list, Notification{Title: title(n), Body: reason(n), URL: path(n), Tag: n.Thread})
	}
	return list, nil
}

// title returns the name of a thread as one short line.
func title(n inbox.Need) string {
	name := []rune(entry.Visible(n.Name, func(rune) string { return " " }))
	switch {
	case len(name) == 0:
		return "Untitled thread"
	case len(name) > 100:
		return string(name[:99]) + "…"
	}
	return string(name)
}

// reason returns why a thread needs somebody, the most urgent reason first.
func reason(n inbox.Need) string {
	switch {
	case n.Approval:
		return "It waits for an approval"
	case n.Mention && n.By.Name != "":
		return title(inbox.Need{Name: n.By.Name}) + " mentioned you"
	case n.Mention:
		return "Somebody mentioned you"
	case n.Failed:
		return "Work that you asked for has failed"
	}
	return "Work that you asked for is finished"
}

// path returns the path of the page that shows why a thread needs somebody.
func path(n inbox.Need) string {
	p := "/threads/" + n.Thread
	if n.Seq > 0 {
		p += fmt.Sprintf("?at=%d#e%d", n.Seq, n.Seq)
	}
	return p
}

// release ends a sweep's claim of a device. The device gets no notification during the pause.
func (p *Pusher) release(ctx context.Context, person db.Scope, d *claimed, pause time.Duration, sent bool) error {
	return p.DB.In(ctx, person, func(tx pgx.Tx) error {
		return p.q.ReleasePushDevice(ctx, tx, query.ReleasePushDeviceParams{ID: d.id, Pause: pause.Seconds(), Failures: int32(d.failures), Notified: sent})
	})
}

// drop removes a device that its push service no longer knows.
func (p *Pusher) drop(ctx context.Context, person db.Scope, d *claimed) error {
	return p.DB.In(ctx, person, func(tx pgx.Tx) error {
		_, err := p.q.RemovePushDevice(ctx, tx, d.id)
		return err
	})
}
