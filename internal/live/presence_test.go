package live_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
)

// another opens the pictures of one more server of the database.
func (b *bench) another(t testing.TB, presentFor time.Duration) *live.Pictures {
	t.Helper()
	p, err := live.Open(t.Context(), live.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Houses: b.houses, Bots: b.bots, Inboxes: inbox.New(b.DB), Boxes: b.boxes, Logger: slog.New(slog.DiscardHandler), PresentFor: presentFor,
	})
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// visitor is a connection that shows an agent as present.
type visitor struct {
	seen  chan []string
	leave func()
	err   chan error
}

func visit(t testing.TB, p *live.Pictures, house, thread, agent string) *visitor {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v, done := &visitor{seen: make(chan []string, 1000), err: make(chan error, 1)}, make(chan struct{})
	v.leave = func() { cancel(); <-done }
	t.Cleanup(v.leave)
	go func() {
		defer close(done)
		for who, err := range p.Present(ctx, db.Scope{House: house, Agent: agent}, thread) {
			if err != nil {
				v.err <- err
				return
			}
			select {
			case v.seen <- who:
			case <-ctx.Done():
			}
		}
	}()
	return v
}

// sees waits until the visitor is shown exactly these.
func (v *visitor) sees(t testing.TB, agents ...string) {
	t.Helper()
	slices.Sort(agents)
	var last []string
	for late := time.After(2 * time.Minute); ; {
		select {
		case last = <-v.seen:
			if slices.Equal(last, agents) {
				return
			}
		case <-late:
			t.Fatalf("they see %s, want %s", strings.Join(last, " "), strings.Join(agents, " "))
		}
	}
}

func TestPeopleSeeWhoElseIsHere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const lasts = 600 * time.Millisecond
	one, two := b.another(t, lasts), b.another(t, lasts)
	ada, bob, cyd := uuid.NewString(), uuid.NewString(), uuid.NewString()

	here := visit(t, one, "h", "t", ada)
	here.sees(t, ada)
	again := visit(t, one, "h", "t", ada) // another tab
	there := visit(t, two, "h", "t", bob)
	here.sees(t, ada, bob)
	there.sees(t, ada, bob)

	// Those of another thread, or of another house, are elsewhere.
	elsewhere, stranger := visit(t, two, "h", "other", cyd), visit(t, two, "other", "t", cyd)
	elsewhere.sees(t, cyd)
	stranger.sees(t, cyd)

	// Of two tabs that leave, the last one counts.
	again.leave()
	late := visit(t, two, "h", "t", cyd)
	late.sees(t, ada, bob, cyd)
	here.sees(t, ada, bob, cyd)
	late.leave()
	here.sees(t, ada, bob)

	// A server that comes later hears of all, and one that dies says nothing any more.
	three := b.another(t, lasts)
	newcomer := visit(t, three, "h", "t", cyd)
	newcomer.sees(t, ada, bob, cyd)
	two.Close()
	if err := <-there.err; fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a visitor of the server that stops gets %v", err)
	}
	newcomer.sees(t, ada, cyd)
	here.sees(t, ada, cyd)
}

func TestMoreAreHereThanOneNoticeHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.another(t, 0), b.another(t, 0)
	agent := uuid.NewString()
	const threads = 200
	for n := range threads {
		visit(t, one, "h", "t"+strings.Repeat("x", n), agent)
	}
	other := uuid.NewString()
	both := []string{agent, other}
	for _, n := range []int{0, threads / 2, threads - 1} {
		visit(t, two, "h", "t"+strings.Repeat("x", n), other).sees(t, both...)
	}
}
