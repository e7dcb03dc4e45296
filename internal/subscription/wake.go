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
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// lookEvery is how late a wake is at worst: when a hint is lost, a lease ends, or a pause is over.
	lookEvery = time.Second
	// gather is the pause between two looks: appends in between are one wake.
	gather = 25 * time.Millisecond
	// maxTelling is how many wakes a server tells at the same time.
	maxTelling = 16
	// firstPause and longestPause are between attempts to tell a wake.
	firstPause, longestPause = time.Second, time.Minute
)

// Start begins to wake subscriptions, until Close.
func Start(c Config) *Subscriptions {
	s := &Subscriptions{Config: c, kick: make(chan struct{}, 1), telling: make(chan struct{}, maxTelling)}
	s.client = s.newClient()
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.run)
	return s
}

// Close ends it. A wake that is being told is begun again later, by whichever server is there.
func (s *Subscriptions) Close() {
	s.stop()
	s.work.Wait()
}

// look makes it look for something to do now.
func (s *Subscriptions) look() {
	select {
	case s.kick <- struct{}{}:
	default: // it is asked already
	}
}

func (s *Subscriptions) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.Log.Changes():
		case <-s.kick:
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		if err := s.begin(); err != nil && s.ctx.Err() == nil {
			s.Logger.Warn("cannot look for subscriptions to wake; trying again", "error", fault.From(err).Detail())
		}
		select {
		case <-time.After(gather):
		case <-s.ctx.Done():
		}
	}
}

// begin begins as many wakes as can be told at once.
func (s *Subscriptions) begin() error {
	free := maxTelling - len(s.telling)
	if free == 0 {
		return nil // who is told of tells, and then looks
	}
	var wakes []query.BeginWakesRow
	err := s.DB.In(s.ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		wakes, err = queries.BeginWakes(s.ctx, tx, int32(free))
		return err
	})
	for _, w := range wakes {
		s.telling <- struct{}{}
		s.work.Go(func() {
			defer func() { <-s.telling; s.look() }()
			if err := s.tell(w); err != nil && s.ctx.Err() == nil {
				s.Logger.Warn("a subscription could not be woken; trying again later", "subscription", w.ID, "error", fault.From(err).Detail())
			}
		})
	}
	return err
}

// tell tells of a wake. When that fails it is begun again after a pause.
func (s *Subscriptions) tell(w query.BeginWakesRow) error {
	var sub Subscription
	var held Wake
	var attempts int32
	err := s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
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
		held, err = hold(s.ctx, tx, row, webhook)
		return err
	})
	if err != nil {
		return err
	}
	held.Streams = sub.Streams
	if sub.Type == pullWake {
		err = s.announce(w, sub)
	} else {
		err = s.call(w, sub, held)
	}
	if err == nil || s.ctx.Err() != nil {
		return err
	}
	pause := min(firstPause<<min(attempts, 10), longestPause)
	pause += time.Duration((rand.Float64()*0.4 - 0.2) * float64(pause)) // so that not all come again at once
	failed := s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
		return queries.FailWake(s.ctx, tx, pause.Milliseconds(), w.ID, w.Generation)
	})
	if failed != nil {
		return failed
	}
	return err
}

// event is a wake as a wake stream has it.
type event struct {
	Type         string `json:"type"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	Generation   int64  `json:"generation"`
	Time         int64  `json:"ts"`
}

// announce writes a wake to its wake stream. From then on it waits to be claimed.
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
	if done.Verdict != stream.Accepted {
		return fault.Newf(fault.Precondition, "make an open wake stream of JSON", "the wake stream %s takes no wakes", sub.WakeStream)
	}
	return s.in(s.ctx, w.HouseID, func(tx pgx.Tx) error {
		row, err := lock(s.ctx, tx, w.HouseID, sub.Name)
		if err != nil || row.Generation != w.Generation || row.Holder != "" {
			return err // somebody claimed it already
		}
		return queries.HoldWake(s.ctx, tx, query.HoldWakeParams{ID: w.ID, Generation: w.Generation})
	})
}
