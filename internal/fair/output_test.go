package fair

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work has n pieces of a house's output worked on, one after the other, each for a while.
func (s *Output) work(house string, n, size int, each time.Duration) {
	for range n {
		end := s.Begin(context.Background(), house, size)
		time.Sleep(each)
		end()
	}
}

func TestAHouseAloneIsReadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewOutput()
		began := time.Now()
		s.Ask("a") // its own requests do not slow it
		var all sync.WaitGroup
		for range s.most { // as many commands as may be worked on at once
			all.Go(func() { s.work("a", 1000, 64<<10, time.Microsecond) })
		}
		all.Wait()
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("1000 µs of work took %s", took)
		}
	})
}

func TestHousesGetTheSameShareHoweverManyCommandsTheyHave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewOutput()
		s.most = 1
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		bytes := map[string]int{}
		var all sync.WaitGroup
		for house, c := range map[string]struct{ commands, size int }{"few": {2, 64 << 10}, "many": {30, 64 << 10}, "small": {2, 16 << 10}} {
			for range c.commands {
				all.Go(func() {
					for ctx.Err() == nil {
						end := s.Begin(ctx, house, c.size)
						time.Sleep(time.Millisecond)
						mu.Lock()
						bytes[house] += c.size
						mu.Unlock()
						end()
					}
				})
			}
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		few, many, small := bytes["few"], bytes["many"], bytes["small"]
		mu.Unlock()
		stop()
		all.Wait()
		if many > few*11/10 || few > many*11/10 || small < few*8/10 {
			t.Errorf("with 2, 30 and 2 commands the houses got %d, %d and %d bytes", few, many, small)
		}
		if len(s.pieces.next) > 0 || s.pieces.Waiting() > 0 || s.pieces.Running() != 0 {
			t.Errorf("at the end it has %+v", s)
		}
	})
}

func TestOutputIsReadModeratelyWhileOthersAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewOutput()
		begin := func(house string) time.Duration {
			began := time.Now()
			s.work(house, 1, 64<<10, 0)
			return time.Since(began)
		}
		count := func(d time.Duration) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				if begin("flood") == 0 {
					time.Sleep(time.Microsecond)
				}
			}
			return n
		}
		s.Ask("other")
		const d = 400 * time.Millisecond
		want := s.pace * d.Seconds() / (64<<10 + pieceCost)
		if n := float64(count(d)); n > want+2 || n < want/2 {
			t.Errorf("%.0f pieces are read while another house asks, want %.0f", n, want)
		}
		if wait := begin("other"); wait > 0 {
			t.Errorf("what the other house prints waits for %s", wait)
		}
		s.Ask("flood") // which does not hide that another one asked
		if n := float64(count(50 * time.Millisecond)); n > want {
			t.Errorf("%.0f pieces are read when it asks, too", n)
		}
		time.Sleep(askedLately)
		began := time.Now()
		s.work("flood", 1000, 64<<10, 0)
		if took := time.Since(began); took > 0 {
			t.Errorf("when nobody asks any more, 1000 pieces wait for %s", took)
		}
	})
}

func TestAPieceWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewOutput()
		s.most = 1
		end := s.Begin(t.Context(), "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan bool)
		go func() {
			s.Begin(ctx, "b", 1)()
			close(left)
		}()
		synctest.Wait()
		cancel()
		<-left
		end()
		if s.pieces.Waiting() > 0 || s.pieces.Running() != 0 {
			t.Errorf("it has %+v", s)
		}
	})
}

func TestAHouseShowsNoMoreLiveOutputThanItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const publishEvery = 50 * time.Millisecond
		s := NewOutput()
		shown := func(house string, rounds int) (n int) {
			for range rounds { // of 16 commands
				for range 16 {
					n += s.Shows(house, 128<<10)
				}
				time.Sleep(publishEvery)
			}
			return n
		}
		const seconds = 10
		most := liveBurst + seconds*livePace + seconds*int(time.Second/publishEvery)*16*liveLeast
		if n := shown("a", seconds*int(time.Second/publishEvery)); n > most || n < liveBurst+(seconds-1)*livePace {
			t.Errorf("%d bytes are shown in %d s, want at most %d", n, seconds, most)
		}
		if n := s.Shows("b", 128<<10); n != (128 << 10) {
			t.Errorf("another house shows %d bytes at once", n)
		}
		if n := s.Shows("a", 10); n != 10 {
			t.Errorf("of a small piece %d bytes are shown", n)
		}
		for i := range 10 * mostLive {
			s.Shows(string(rune('a'+i)), 1)
			time.Sleep(time.Second)
		}
		if n := len(s.live); n > mostLive+1 {
			t.Errorf("it remembers %d houses", n)
		}
	})
}
