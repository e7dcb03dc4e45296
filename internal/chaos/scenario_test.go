//go:build linux

package chaos

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// scenario is a kind of trouble.
type scenario struct {
	name    string
	servers int
	// lean says that the servers are built without the race detector even if this test has it, because it takes much
	// memory.
	lean bool
	// disk is the size of the disk of Postgres in bytes; 0 uses the machine's.
	disk int64
	// trouble causes the trouble for about this long, while clients write, read and follow.
	trouble func(w *world, lasts time.Duration)
}

var scenarios = []scenario{
	{name: "a server is killed and started again", servers: 1, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, w.killServer)
	}},
	{name: "one of two servers is killed, and clients go on with the other", servers: 2, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, func() {
			s := w.servers[w.rng.IntN(2)]
			s.process.kill()
			w.resume()
			s.start()
		})
	}},
	{name: "Postgres is killed and started again", servers: 1, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, w.killPostgres)
	}},
	{name: "Postgres is restarted", servers: 2, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, w.restartPostgres)
	}},
	{name: "connections to Postgres are cut in the middle of commits", servers: 2, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, w.cutCommits)
	}},
	{name: "connections to Postgres fall silent", servers: 1, trouble: func(w *world, _ time.Duration) {
		w.pause(0, time.Second)
		w.db.wire.hush()
		w.resume()
	}},
	{name: "all of that, one upon the other", servers: 2, trouble: func(w *world, lasts time.Duration) {
		faults := []func(){w.killServer, w.killPostgres, w.restartPostgres, w.cutCommits, w.db.wire.cut}
		w.again(lasts, func() {
			for range 1 + w.rng.IntN(4) {
				w.db.wire.next.Store(int32(w.anyAccident()))
				faults[w.rng.IntN(len(faults))]()
			}
			w.db.wire.next.Store(int32(none))
		})
	}},
	{name: "tails stop reading for a while, and cost nobody anything", servers: 1, lean: true, trouble: func(w *world, _ time.Duration) {
		const stalled, records, size = 12, 128, 128 << 10
		stopped := w.print()
		w.await("the command line follows", resumeWithin, func() bool { return stopped.look() > 0 })
		for range stalled {
			w.stall()
		}
		before := w.servers[0].process.resident(w)
		stopped.Signal(syscall.SIGSTOP)
		w.flood(records, size)
		// All other followers must receive it while the stalled ones read nothing.
		end := int64(len(w.logs()[w.threadLog]))
		for _, f := range w.tails {
			if f.log == w.threadLog {
				w.await("tail "+f.name+" keeps pace", resumeWithin, func() bool { return f.reached.Load() >= end })
			}
		}
		if at := stopped.look(); at >= end {
			w.Errorf("the stopped tail has all %d records: this shows nothing", at)
		}
		// The server holds a page and its rendering for each of them, a few MiB with entries as large as these. If it
		// kept everything that they have not read, it would grow by more than this.
		const enough = stalled * records * size * 5 / 8
		if grown := w.servers[0].process.resident(w) - before; grown > enough {
			w.Errorf("the server took %d MiB more while %d tails did not read %d MiB each", grown>>20, stalled, records*size>>20)
		}
		stopped.Signal(syscall.SIGCONT)
	}},
	{name: "the disk of Postgres is full for a while", servers: 1, disk: 192 << 20, trouble: func(w *world, lasts time.Duration) {
		w.again(lasts, func() {
			w.full.Store(0)
			empty := w.db.fill(w)
			w.await("an append says that the disk is full", resumeWithin, func() bool { return w.full.Load() > 0 })
			if w.rng.IntN(2) == 0 {
				w.db.switchWAL(w) // there is no space for the next segment, so Postgres panics
				w.pause(0, time.Second)
			}
			empty()
			w.db.revive(w)
		})
	}},
}

// killServer kills a server, and starts it again.
func (w *world) killServer() {
	w.Helper()
	s := w.servers[w.rng.IntN(len(w.servers))]
	s.process.kill()
	w.pause(0, 300*time.Millisecond)
	s.start()
}

// killPostgres kills Postgres, with or without its processes, and starts it again.
func (w *world) killPostgres() {
	w.Helper()
	w.db.kill(w, w.rng.IntN(2) == 0)
	w.pause(0, 300*time.Millisecond)
	w.db.start(w)
}

func (w *world) restartPostgres() {
	w.Helper()
	w.db.restart(w)
}

// cutCommits cuts connections in the middle of some commits, and at last all of them.
func (w *world) cutCommits() {
	w.Helper()
	before := w.db.wire.happened.Load()
	const some = 8
	for range some {
		w.db.wire.next.Store(int32(w.anyAccident()))
		w.pause(10*time.Millisecond, 150*time.Millisecond)
	}
	w.await("a commit is cut", resumeWithin, func() bool { return w.db.wire.happened.Load() > before })
	w.db.wire.next.Store(int32(none))
	if w.rng.IntN(2) == 0 {
		w.db.wire.cut()
	}
}

func (w *world) anyAccident() accident { return neverArrives + accident(w.rng.IntN(3)) }

// flood writes this many records of about this size to the thread's log.
func (w *world) flood(records, size int) {
	const writers = 4
	var all sync.WaitGroup
	for range writers {
		wr := w.newWriter(2*size, &rpc{w})
		all.Go(func() {
			for n := range records / writers {
				wr.appendBatch(n)
			}
		})
	}
	all.Wait()
}

// stall starts to follow the thread, and reads nothing after the status of the answer.
func (w *world) stall() {
	w.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.servers[0].url, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	req := w.servers[0].request(w.Context(), http.MethodGet, w.threadLog+"?live=sse&offset=-1", nil)
	answer := make([]byte, len("HTTP/1.1 200"))
	if err = req.Write(conn); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err != nil || string(answer) != "HTTP/1.1 200" {
		w.Fatalf("%s: %v", answer, err)
	}
}

// again repeats something for a while, at least twice, and waits each time until what it harmed works again.
func (w *world) again(lasts time.Duration, happens func()) {
	w.Helper()
	for n, end := 0, time.Now().Add(lasts); n < 2 || time.Now().Before(end); n++ {
		w.pause(50*time.Millisecond, 700*time.Millisecond)
		happens()
		w.resume()
	}
}

// play runs a scenario.
func (s scenario) play(t *testing.T, seed uint64, lasts time.Duration) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("chance began with -chaos.seed %d", *chance)
		}
	})
	w := newWorld(t, seed, s)
	w.write(200, &rpc{w}, &rpc{w}, &posts{w}, &produces{world: w, name: "p"}, &produces{world: w, name: "q"})
	w.write(20_000, &rpc{w}, &produces{world: w, name: "large"})
	w.follow()
	w.look()
	w.resume()
	s.trouble(w, lasts)
	w.resume()
	w.verify()
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.play(t, *chance+uint64(i), 3*time.Second)
		})
	}
}

// TestChaos is for `make chaos`, which runs each scenario longer and more often.
func TestChaos(t *testing.T) {
	if *lasting == 0 {
		t.Skip("it runs with -chaos.for")
	}
	rng := rand.New(rand.NewPCG(*chance, 0))
	for n, end := 1, time.Now().Add(*lasting); time.Now().Before(end) && !t.Failed(); n++ {
		s := scenarios[rng.IntN(len(scenarios))]
		t.Run(fmt.Sprintf("%d: %s", n, s.name), func(t *testing.T) { s.play(t, rng.Uint64(), 15*time.Second) })
	}
}
