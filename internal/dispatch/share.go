package dispatch

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"
)

// This file shares among houses what a server spends on the output of commands: reading it, removing secrets, keeping it
// and showing it. What a program prints while its server does not read waits in its sandbox, and then the program waits,
// so nothing is lost. The responses of models are output, too: their servers may send as fast as the network is.
//
// A house that is alone gets all of it. If several houses print more than the server reads, they take turns by what they
// have used, however many commands each of them has. While other houses ask for something, a house's output is read at a
// moderate pace, because to print fast costs the machine more than to read: the program, the writing of its record and the
// disk are as busy as the server.

const (
	// moderatePace is how many bytes of output a second and core a server reads at the moderate pace, of all houses
	// together: a small part of what it could.
	moderatePace = 8 << 20
	// askedLately is how long after a house asked for something the others keep to the moderate pace. It is longer than
	// a command takes to begin, and than people and bots need for the next one of several quick commands.
	askedLately = time.Second
	// pieceCost is what a piece of output costs besides its bytes, in bytes. Programs can print in very small pieces.
	pieceCost = 2 << 10
	// responseByte is what a byte of a model's response costs, in bytes of output: it is parsed twice.
	responseByte = 4
	// liveBurst is how much live output of a house watchers get at once, and livePace how much a second after that. Live
	// output is copied to all servers through the database. It is more than people can read.
	liveBurst, livePace = 1 << 20, 1 << 20
	// liveLeast is how much of a piece watchers get in any case, so that they see that the output goes on.
	liveLeast = 2 << 10
)

// outputShares divides a server's work on output among houses. It is safe for concurrent use.
type outputShares struct {
	pace float64 // bytes a second at the moderate pace

	mu   sync.Mutex
	free int // how many more pieces may be worked on at once
	// clock is where the last piece that began stands in the order of all pieces, and used where the next piece of each
	// house stands, if that is not at the clock (start-time fair queuing).
	clock   int64
	used    map[string]int64
	waiting []*outputPiece
	// last is the house that asked for something last, and before is when another one last did.
	last   string
	asked  time.Time
	before time.Time
	// next is when the next piece may begin at the moderate pace, and timer runs until then if one waits.
	next  time.Time
	timer *time.Timer
	live  map[string]liveShare // by house
}

// outputPiece is a piece of output that waits.
type outputPiece struct {
	house       string
	start, cost int64
	begins      chan struct{} // closed when it begins
}

// liveShare is how much live output a house may show, as of a time.
type liveShare struct {
	left float64
	at   time.Time
}

func newOutputShares() *outputShares {
	cores := runtime.GOMAXPROCS(0)
	return &outputShares{pace: float64(moderatePace * cores), free: max(1, cores/2), used: map[string]int64{}, live: map[string]liveShare{}}
}

// asks reports that a house asks for something: other houses' output is read at a moderate pace for a while.
func (s *outputShares) asks(house string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != house {
		s.last, s.before = house, s.asked
	}
	s.asked = time.Now()
}

// othersAsk reports whether a house other than the given one asked for something lately. Callers hold s.mu.
func (s *outputShares) othersAsk(house string, now time.Time) bool {
	asked := s.asked
	if s.last == house {
		asked = s.before
	}
	return now.Sub(asked) < askedLately
}

// begin waits until the server may work on n bytes of a house's output, or ctx ends. The caller calls end after its work,
// and waits for nothing before.
func (s *outputShares) begin(ctx context.Context, house string, n int) (end func()) {
	s.mu.Lock()
	p := &outputPiece{house: house, start: max(s.clock, s.used[house]), cost: int64(n) + pieceCost, begins: make(chan struct{})}
	s.used[house] = p.start + p.cost
	s.waiting = append(s.waiting, p)
	s.admit()
	s.mu.Unlock()
	select {
	case <-p.begins:
		return s.end
	default:
	}
	select {
	case <-p.begins:
		return s.end
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, p); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return func() {}
	}
	return s.end
}

// response is begin for n bytes of a model's response.
func (s *outputShares) response(ctx context.Context, house string, n int) (end func()) {
	return s.begin(ctx, house, responseByte*n)
}

func (s *outputShares) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.admit()
	if len(s.waiting) == 0 { // everybody had enough
		clear(s.used)
	}
}

// admit begins the pieces that may begin. Callers hold s.mu.
func (s *outputShares) admit() {
	for s.free > 0 && len(s.waiting) > 0 {
		now := time.Now()
		early := now.Before(s.next)
		var first *outputPiece
		moderate := false
		for _, p := range s.waiting {
			if others := s.othersAsk(p.house, now); !(early && others) && (first == nil || p.start < first.start) {
				first, moderate = p, others
			}
		}
		if first == nil {
			if s.timer == nil {
				s.timer = time.AfterFunc(s.next.Sub(now), s.resume)
			}
			return
		}
		if moderate {
			s.next = now.Add(time.Duration(float64(first.cost) / s.pace * float64(time.Second)))
		}
		s.free--
		s.clock = max(s.clock, first.start)
		s.waiting = slices.DeleteFunc(s.waiting, func(p *outputPiece) bool { return p == first })
		close(first.begins)
	}
}

// resume begins pieces that waited for the moderate pace.
func (s *outputShares) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	s.admit()
}

// shows returns how many of n bytes of live output a house may show now.
func (s *outputShares) shows(house string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	share, known := s.live[house]
	if !known {
		share = liveShare{liveBurst, now}
	}
	share.left = min(share.left+livePace*now.Sub(share.at).Seconds(), liveBurst)
	n = min(n, max(int(share.left), liveLeast))
	share.left, share.at = max(share.left-float64(n), 0), now
	s.live[house] = share
	if len(s.live) > commandWorkers {
		for house, share := range s.live {
			if now.Sub(share.at).Seconds()*livePace > liveBurst {
				delete(s.live, house)
			}
		}
	}
	return n
}

// sharedWriter writes within the share of a house.
type sharedWriter struct {
	ctx    context.Context
	shares *outputShares
	house  string
	to     io.Writer
}

func (w sharedWriter) Write(p []byte) (int, error) {
	defer w.shares.begin(w.ctx, w.house, len(p))()
	return w.to.Write(p)
}
