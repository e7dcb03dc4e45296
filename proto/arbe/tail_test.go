//go:build go1.25

package arbe_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// positions ranges over a tail until the entry at last has come, and returns the positions of its entries.
func positions(t *testing.T, c *arbe.Client, after, last int64, opts ...arbe.TailOption) []int64 {
	t.Helper()
	var seen []int64
	for event, err := range c.Tail(t.Context(), "thread", after, opts...) {
		if err != nil {
			t.Fatalf("the tail ended with %v after %v", err, seen)
		}
		if e := event.GetEntry(); e != nil {
			seen = append(seen, e.GetSeq())
			if e.GetSeq() >= last {
				break
			}
		}
	}
	return seen
}

// upTo returns every position after the given one, up to last.
func upTo(after, last int64) []int64 {
	var all []int64
	for seq := after + 1; seq <= last; seq++ {
		all = append(all, seq)
	}
	return all
}

func expect(t *testing.T, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got entries %v, want %v", got, want)
	}
}

// wantGrowing checks that each wait is between half of its limit and its limit, which doubles from 100 ms up to 5 seconds.
func wantGrowing(t *testing.T, waits []time.Duration) {
	t.Helper()
	for i, wait := range waits {
		ceiling := min(100*time.Millisecond<<i, 5*time.Second)
		if wait < ceiling/2 || wait > ceiling {
			t.Errorf("attempt %d: it waited %s, want %s to %s", i+1, wait, ceiling/2, ceiling)
		}
	}
}

// nobody is a network in which no server listens.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

func TestTailAsksForTypedEntriesOnEveryConnection(t *testing.T) {
	t.Parallel()
	s := &scriptedServer{onSend: func(call int, event *arbev1.TailResponse) error {
		if call == 1 && event.GetEntry().GetSeq() == 2 {
			return errors.New("cut")
		}
		return nil
	}}
	c := serve(t, s)
	s.write(2)
	for event, err := range c.Tail(t.Context(), "thread", 0, arbe.WithTyped()) {
		if err != nil {
			t.Fatal(err)
		}
		e := event.GetEntry()
		if e.GetChat().GetText() != "hi" {
			t.Errorf("entry %d is not typed: %v", e.GetSeq(), e)
		}
		if e.GetSeq() == 2 {
			return
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()

	t.Run("replays what is there and then follows", func(t *testing.T) {
		t.Parallel()
		s := &scriptedServer{}
		c := serve(t, s)
		s.write(3)
		var kinds []string
		for event, err := range c.Tail(t.Context(), "thread", 1) {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case event.GetCaughtUp() != nil:
				kinds = append(kinds, "caught up")
				s.write(1)
			case event.GetEntry() != nil:
				kinds = append(kinds, "entry")
			default:
				kinds = append(kinds, "something else")
			}
			if len(kinds) == 4 {
				break
			}
		}
		if want := []string{"entry", "entry", "caught up", "entry"}; !slices.Equal(kinds, want) {
			t.Fatalf("got %v, want %v", kinds, want)
		}
	})

	t.Run("loses and doubles nothing over connections that are cut anywhere", func(t *testing.T) {
		t.Parallel()
		const all = 400
		var cuts atomic.Int32
		s := &scriptedServer{onSend: func(int, *arbev1.TailResponse) error {
			switch rand.N(50) {
			case 0: // in the middle of an answer, like a killed server
				cuts.Add(1)
				panic(http.ErrAbortHandler)
			case 1: // like a server that stops
				cuts.Add(1)
				return connect.NewError(connect.CodeUnavailable, errors.New("the server stops"))
			}
			return nil
		}}
		c := serve(t, s)
		go func() {
			for range all / 10 {
				s.write(10)
			}
		}()
		expect(t, positions(t, c, 0, all), upTo(0, all))
		if cuts.Load() == 0 {
			t.Fatal("no connection was cut: the test shows nothing")
		}
	})

	t.Run("goes on when the server ends the stream without an error", func(t *testing.T) {
		t.Parallel()
		s := &scriptedServer{}
		s.onCall = func(_ context.Context, call int) error {
			if call == 1 {
				return errEnd
			}
			return nil
		}
		c := serve(t, s)
		s.write(2)
		expect(t, positions(t, c, 0, 2), upTo(0, 2))
	})

	t.Run("asks again for what a connection left out, and drops what it repeats", func(t *testing.T) {
		t.Parallel()
		s := &scriptedServer{}
		s.onSend = func(call int, event *arbev1.TailResponse) error {
			if e := event.GetEntry(); e != nil && call < 5 && rand.N(3) == 0 {
				wrong := e.GetSeq() + int64(rand.N(3)) - 1
				event.Event = entryEvent(&arbev1.Entry{Seq: wrong}).Event
			}
			return nil
		}
		c := serve(t, s)
		s.write(50)
		expect(t, positions(t, c, 0, 50), upTo(0, 50))
	})

	t.Run("leaves a connection that fell silent and says why", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			var first context.Context
			s := &scriptedServer{}
			s.onCall = func(ctx context.Context, call int) error {
				if call == 1 {
					first = ctx
				}
				return nil
			}
			s.onSend = func(call int, event *arbev1.TailResponse) error {
				switch {
				case call == 1 && event.GetAlive() != nil:
					<-first.Done() // the peer disappears without closing the connection
					return first.Err()
				case call == 2 && event.GetCaughtUp() != nil:
					s.write(1)
				}
				return nil
			}
			c := serveInMemory(s)
			s.write(1)
			var reasons []string
			lost := arbe.OnDisconnect(func(err error, _ time.Duration) { reasons = append(reasons, err.Error()) })
			expect(t, positions(t, c, 0, 2, arbe.WithSilence(40*time.Second), lost), upTo(0, 2))
			if want := []string{"the server said nothing for 40s"}; !slices.Equal(reasons, want) {
				t.Fatalf("got reasons %q, want %q", reasons, want)
			}
		})
	})

	t.Run("keeps a quiet connection on which the server says that it is alive", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			s := &scriptedServer{}
			alive := 0
			s.onSend = func(_ int, event *arbev1.TailResponse) error {
				if event.GetAlive() != nil {
					if alive++; alive == 1500 {
						go s.write(1)
					}
				}
				return nil
			}
			c := serveInMemory(s)
			lost := arbe.OnDisconnect(func(err error, _ time.Duration) { t.Errorf("it left the connection: %v", err) })
			expect(t, positions(t, c, 0, 1, arbe.WithSilence(20*time.Second), lost), upTo(0, 1))
		})
	})

	t.Run("does not take a caller who thinks for a server that is silent", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			s := &scriptedServer{}
			c := serveInMemory(s)
			s.write(2)
			lost := arbe.OnDisconnect(func(err error, _ time.Duration) { t.Errorf("it left the connection: %v", err) })
			for event, err := range c.Tail(t.Context(), "thread", 0, arbe.WithSilence(20*time.Second), lost) {
				if err != nil {
					t.Fatal(err)
				}
				if event.GetEntry().GetSeq() == 2 {
					break
				}
				<-time.After(time.Minute)
			}
		})
	})

	t.Run("waits longer from attempt to attempt, and never more than five seconds", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			c := arbe.New("http://memory", token, arbe.WithHTTPClient(&http.Client{Transport: nobody{}}))
			ctx, cancel := context.WithCancel(t.Context())
			var waits []time.Duration
			lost := arbe.OnDisconnect(func(_ error, wait time.Duration) {
				if waits = append(waits, wait); len(waits) == 4 {
					cancel()
				}
			})
			for _, err := range c.Tail(ctx, "thread", 0, lost) {
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("it ended with %v, want the context's error", err)
				}
			}
			wantGrowing(t, waits)
		})
	})

	t.Run("waits longer also when every connection ends at the same place", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			s := &scriptedServer{onSend: func(_ int, event *arbev1.TailResponse) error {
				if event.GetCaughtUp() != nil {
					return connect.NewError(connect.CodeUnavailable, errors.New("not now"))
				}
				return nil
			}}
			c := serveInMemory(s)
			s.write(3)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var waits []time.Duration
			lost := arbe.OnDisconnect(func(_ error, wait time.Duration) {
				if waits = append(waits, wait); len(waits) == 4 {
					cancel()
				}
			})
			for range c.Tail(ctx, "thread", 0, lost) {
			}
			wantGrowing(t, waits)
		})
	})

	t.Run("waits longer at a gap that stays, and ends with it", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T) {
			s := &scriptedServer{onSend: func(_ int, event *arbev1.TailResponse) error {
				if e := event.GetEntry(); e.GetSeq() > 3 {
					event.Event = entryEvent(&arbev1.Entry{Seq: e.GetSeq() + 2}).Event
				}
				return nil
			}}
			c := serveInMemory(s)
			s.write(5)
			var seen []int64
			var waits []time.Duration
			var last error
			for event, err := range c.Tail(t.Context(), "thread", 0, arbe.OnDisconnect(func(_ error, wait time.Duration) { waits = append(waits, wait) })) {
				if e := event.GetEntry(); e != nil {
					seen = append(seen, e.GetSeq())
				}
				last = err
			}
			expect(t, seen, upTo(0, 3))
			if gap := (*arbe.GapError)(nil); !errors.As(last, &gap) || gap.Position != 3 || gap.Found != 6 {
				t.Errorf("it ended with %v", last)
			}
			if s.calls != len(waits)+1 || len(waits) != 5 {
				t.Errorf("it asked %d times, and told of %d", s.calls, len(waits))
			}
			wantGrowing(t, waits)
		})
	})

	t.Run("ends with the context, also while nothing comes", func(t *testing.T) {
		t.Parallel()
		s := &scriptedServer{}
		c := serve(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		for event, err := range c.Tail(ctx, "thread", 0) {
			if event.GetCaughtUp() != nil {
				cancel()
			}
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Fatalf("it ended with %v, want the context's error", last)
		}
	})
}

func TestTailGivesUp(t *testing.T) {
	t.Parallel()
	for _, code := range []connect.Code{
		connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeNotFound,
		connect.CodeInvalidArgument, connect.CodeOutOfRange,
	} {
		t.Run("on "+code.String()+", with the server's next step", func(t *testing.T) {
			t.Parallel()
			s := &scriptedServer{onCall: func(context.Context, int) error {
				err := connect.NewError(code, errors.New("no"))
				err.Meta().Set(arbev1.NextHeader, "do this")
				return err
			}}
			c := serve(t, s)
			var errs []error
			for _, err := range c.Tail(t.Context(), "thread", 0) {
				errs = append(errs, err)
			}
			if len(errs) != 1 || connect.CodeOf(errs[0]) != code || arbe.Next(errs[0]) != "do this" {
				t.Fatalf("got %v with next step %q, want one %s error with its next step", errs, arbe.Next(errs[0]), code)
			}
			if s.calls != 1 {
				t.Fatalf("it asked %d times", s.calls)
			}
		})
	}

	t.Run("when a proxy refuses the credential", func(t *testing.T) {
		t.Parallel()
		c := serveAs(t, &scriptedServer{}, "")
		for _, err := range c.Tail(t.Context(), "thread", 0) {
			if connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Fatalf("got %v, want an unauthenticated error", err)
			}
		}
	})
}
