package fair

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"
)

const (
	// moderatePace is how many bytes of output, of all houses together, a server reads per second and core at the moderate
	// pace. It is a small part of what the server could read.
	moderatePace = 8 << 20
	// askedLately is how long after a house asked for something the others keep to the moderate pace. It is longer than
	// a command takes to begin, and than people and bots need for the next one of several quick commands.
	askedLately = time.Second
	// pieceCost is the cost of a piece of output besides its bytes, in bytes. Programs can print in very small pieces.
	pieceCost = 2 << 10
	// responseByte is the cost of a byte of a model's response, in bytes of output: 50 ns to check and parse it.
	responseByte = 8
	// liveBurst is how much live output of a house watchers get at once, and livePace how much a second after that. Live
	// output is copied to all servers through the database. It is more than people can read.
	liveBurst, livePace = 1 << 20, 1 << 20
	// liveLeast is how much of a piece watchers get in any case, so that they see that the output goes on.
	liveLeast = 2 << 10
	// mostLive is how many houses without recent output a server remembers.
	mostLive = 64
)

// Output divides a server's work on the output of commands among houses: reading it, removing secrets, keeping it and
// showing it. Output that the server does not read yet waits in its sandbox. When that is full, the program waits, so
// nothing is lost. The responses of models count as output, too, because a model's server may send as fast as the network.
//
// A house that is alone gets all of it. If several houses print more than the server reads, they take turns by what they
// have used, however many commands each of them has. While other houses ask for something, a house's output is read at a
// moderate pace, because printing costs the machine more than reading: the program, the writing of its record and the disk
// are as busy as the server.
//
// It is safe for concurrent use.
type Output struct {
	pace float64 // bytes a second at the moderate pace
	most int     // how many pieces may be worked on at once

	mu       sync.Mutex
	pieces   Queue
	activity Activity
	// next is when the next piece may begin at the moderate pace, and timer runs until then if one waits.
	next  time.Time
	timer *time.Timer
	live  map[string]liveShare // by house
}

// liveShare is how much live output a house may show, as of a time.
type liveShare struct {
	left float64
	at   time.Time
}

// NewOutput returns the shares of a server that has all cores of this process.
func NewOutput() *Output {
	cores := runtime.GOMAXPROCS(0)
	return &Output{pace: float64(moderatePace * cores), most: max(1, cores/2), live: map[string]liveShare{}}
}

// Ask reports that a house asks for something: other houses' output is read at a moderate pace for a while.
func (o *Output) Ask(house string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.activity.Ask(house, time.Now())
}

// Begin waits until the server may work on n bytes of a house's output, or ctx ends. The caller calls end after its work, and
// must not wait for anything before that.
func (o *Output) Begin(ctx context.Context, house string, n int) (end func()) {
	o.mu.Lock()
	piece := o.pieces.Add(house, int64(n)+pieceCost)
	o.admit()
	o.mu.Unlock()
	select {
	case <-piece.Begun:
		return o.end
	default:
	}
	select {
	case <-piece.Begun:
		return o.end
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pieces.Leave(piece) {
		return func() {}
	}
	return o.end
}

// BeginResponse is Begin for n bytes of a model's response.
func (o *Output) BeginResponse(ctx context.Context, house string, n int) (end func()) {
	return o.Begin(ctx, house, responseByte*n)
}

func (o *Output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pieces.End()
	o.admit()
}

// admit begins the pieces that may begin. Callers hold o.mu.
func (o *Output) admit() {
	for o.pieces.Running() < o.most && o.pieces.Waiting() > 0 {
		now := time.Now()
		moderate := func(t *Turn) bool { return o.activity.Others(t.House, now) < askedLately }
		early := now.Before(o.next)
		first := o.pieces.First(func(t *Turn) bool { return !early || !moderate(t) })
		if first == nil {
			if o.timer == nil {
				o.timer = time.AfterFunc(o.next.Sub(now), o.resume)
			}
			return
		}
		if moderate(first) {
			o.next = now.Add(time.Duration(float64(first.Cost) / o.pace * float64(time.Second)))
		}
		o.pieces.Begin(first)
	}
}

// resume begins pieces that waited for the moderate pace.
func (o *Output) resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	o.admit()
}

// Shows returns how many of n bytes of live output a house may show now.
func (o *Output) Shows(house string, n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	share, known := o.live[house]
	if !known {
		share = liveShare{liveBurst, now}
	}
	share.left = min(share.left+livePace*now.Sub(share.at).Seconds(), liveBurst)
	n = min(n, max(int(share.left), liveLeast))
	share.left, share.at = max(share.left-float64(n), 0), now
	o.live[house] = share
	if len(o.live) > mostLive {
		for house, share := range o.live {
			if now.Sub(share.at).Seconds()*livePace > liveBurst {
				delete(o.live, house)
			}
		}
	}
	return n
}

// Writer returns a writer to w within the share of a house. A write waits for its turn, until ctx ends at the latest.
func (o *Output) Writer(ctx context.Context, house string, w io.Writer) io.Writer {
	return sharedWriter{ctx, o, house, w}
}

type sharedWriter struct {
	ctx    context.Context
	shares *Output
	house  string
	to     io.Writer
}

func (w sharedWriter) Write(p []byte) (int, error) {
	defer w.shares.Begin(w.ctx, w.house, len(p))()
	return w.to.Write(p)
}
