package subscription

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// checkEvery is the longest delay of a wake without a notification: because one was lost, a lease has ended, or a
	// pause is over.
	checkEvery = time.Second
	// batchPause is the pause between two checks, so that a burst of appends makes one wake.
	batchPause = 25 * time.Millisecond
	// maxDeliveries limits the wakes that a server delivers at the same time, maxRedeliveries those among them that have
	// failed before, and maxHouseDeliveries those of one house on all servers. So a webhook that answers slowly or never
	// delays nobody else.
	maxDeliveries, maxRedeliveries, maxHouseDeliveries = 64, 16, 4
	// deliverTimeout is longer than any delivery takes. A wake that its server has not delivered by then is started
	// again, because the server has probably died.
	deliverTimeout = webhookTimeout + 10*time.Second
	// minRetryPause and maxRetryPause limit the pause between attempts to deliver a wake. It doubles each time, so
	// that a webhook that fails for long is called rarely.
	minRetryPause, maxRetryPause = time.Second, 15 * time.Minute
)

// Start starts to deliver wakes until Close is called.
func Start(c Config) *Subscriptions {
	s := &Subscriptions{Config: c, kick: make(chan struct{}, 1), deliveries: make(chan struct{}, maxDeliveries), redeliveries: make(chan struct{}, maxRedeliveries)}
	s.client = outbound.Client(s.PrivateHosts, webhookTimeout, maxDeliveries, maxAnswer)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.run)
	return s
}

// Close stops the delivery. A wake whose delivery was interrupted is delivered later by any running server.
func (s *Subscriptions) Close() {
	s.stop()
	s.work.Wait()
}

func (s *Subscriptions) run() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.Log.Changes():
		case <-s.kick:
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		if err := s.startWakes(); err != nil && s.ctx.Err() == nil {
			s.Logger.WarnContext(s.ctx, "cannot look for subscriptions to wake; trying again", "error", fault.From(err).Detail())
		}
		select {
		case <-time.After(batchPause):
		case <-s.ctx.Done():
		}
	}
}

// startWakes starts as many wakes as can be delivered at once.
func (s *Subscriptions) startWakes() error {
	free := maxDeliveries - len(s.deliveries)
	if free == 0 {
		return nil // the loop checks again when a delivery ends
	}
	most := query.BeginWakesParams{
		Most: int32(free), Failing: int32(min(free, maxRedeliveries-len(s.redeliveries))), OfHouse: maxHouseDeliveries, WithinMs: deliverTimeout.Milliseconds(),
	}
	var wakes []query.BeginWakesRow
	err := s.DB.In(s.ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		wakes, err = queries.BeginWakes(s.ctx, tx, most)
		return err
	})
	for _, w := range wakes {
		s.deliveries <- struct{}{}
		if w.Failing {
			s.redeliveries <- struct{}{}
		}
		s.work.Go(func() { s.deliverOne(w) })
	}
	return err
}

// deliverOne delivers a wake, and then lets the next one begin.
func (s *Subscriptions) deliverOne(w query.BeginWakesRow) {
	defer func() {
		if w.Failing {
			<-s.redeliveries
		}
		<-s.deliveries
		s.wakeLoop()
	}()
	if err := s.deliver(w); err != nil && s.ctx.Err() == nil {
		s.Logger.WarnContext(s.ctx, "a wake could not be delivered; trying again later", "subscription", w.ID, "error", fault.From(err).Detail())
	}
}

// deliver delivers a wake. After a failure the wake is started again after a pause.
func (s *Subscriptions) deliver(w query.BeginWakesRow) error {
	sub, held, attempts, err := s.prepare(w)
	if err != nil {
		return err
	}
	held.Streams = sub.Streams
	if sub.Type == pullWake {
		err = s.announce(w, sub)
	} else {
		err = s.call(w, sub, held)
	}
	if s.ctx.Err() != nil { // the server stops, which must not count as a failure of the webhook
		return err
	}
	if err == nil {
		return s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error { return queries.EndCall(s.ctx, tx, w.Generation, w.ID) })
	}
	pause := min(minRetryPause<<min(attempts, 10), maxRetryPause)
	// A random part, so that the retries of many webhooks that failed together do not come all at once.
	pause += time.Duration((rand.Float64()*0.4 - 0.2) * float64(pause))
	failed := s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
		return queries.FailWake(s.ctx, tx, pause.Milliseconds(), w.ID, w.Generation)
	})
	if failed != nil {
		return failed
	}
	return err
}

// prepare reads the subscription of a wake. For a webhook, it also holds the wake.
func (s *Subscriptions) prepare(w query.BeginWakesRow) (sub Subscription, held Wake, attempts int32, err error) {
	err = s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
		name, err := queries.NameOfSubscription(s.ctx, tx, w.ID)
		if err != nil {
			return err
		}
		row, err := lock(s.ctx, tx, w.HouseID, name)
		if err != nil {
			return err
		}
		attempts = row.Attempts
		if sub, err = show(s.ctx, tx, name, row); err != nil || sub.Type == pullWake {
			return err
		}
		held = newWake(row)
		return queries.HoldCall(s.ctx, tx, digest(held.Token), w.ID, w.Generation)
	})
	return sub, held, attempts, err
}

// event is a wake as written to a wake stream.
type event struct {
	Type         string `json:"type"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	Generation   int64  `json:"generation"`
	Time         int64  `json:"ts"`
}

// announce writes a wake to its wake stream, where it waits to be claimed.
func (s *Subscriptions) announce(w query.BeginWakesRow, sub Subscription) error {
	e := event{Type: "wake", Subscription: sub.Name, Generation: w.Generation, Time: time.Now().UnixMilli()}
	for _, l := range sub.Streams {
		if l.Tail > l.Acked {
			e.Stream = l.Stream
			break
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	drafts, err := stream.Drafts("application/json", "", text)
	if err != nil {
		return err
	}
	done, err := s.Log.Write(s.ctx, stream.Ref{House: w.HouseID, Name: sub.WakeStream}, stream.Write{ContentType: "application/json", Content: drafts})
	if err != nil {
		return err
	}
	if done.Outcome != stream.Accepted {
		return fault.Newf(fault.Precondition, "create an open wake stream with content type application/json", "wakes cannot be written to the wake stream %s", sub.WakeStream)
	}
	return s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
		row, err := lock(s.ctx, tx, w.HouseID, sub.Name)
		if err != nil || row.Generation != w.Generation || row.Holder != "" {
			return err // a worker has already claimed the wake, so it must not be held again
		}
		return queries.HoldWake(s.ctx, tx, query.HoldWakeParams{ID: w.ID, Generation: w.Generation})
	})
}
