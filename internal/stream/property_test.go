package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// TestTheLogUnderFire lets writers, readers and a saboteur loose on two servers that share a database, and
// then compares what was acknowledged and what was seen with what is in the log.
func TestTheLogUnderFire(t *testing.T) {
	t.Parallel()
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			newFire(t, seed).run()
		})
	}
}

const (
	fireWriters = 6  // of each stream
	fireReaders = 4  // of each stream
	fireWrites  = 60 // of each writer
	fireEvery   = 25 // writes between two acts of sabotage
)

type fire struct {
	*bench
	seed    uint64
	servers [2]atomic.Pointer[stream.Log]
	streams []*testedStream
	writes  chan struct{} // one for each write, for the saboteur to count
}

// testedStream is a stream, with what was acknowledged and what its readers finished.
type testedStream struct {
	ref stream.Ref

	mu       sync.Mutex
	acked    map[string]int64 // position by id
	ids      []string         // of acked, for repeating them
	undone   map[string]bool  // written in transactions that were rolled back
	finished chan struct{}    // closed when all writers are done
	tail     int64            // the last position, once finished
}

func newFire(t *testing.T, seed uint64) *fire {
	f := &fire{bench: setup(t), seed: seed, writes: make(chan struct{})}
	for i := range f.servers {
		f.servers[i].Store(f.open())
	}
	for i := range 2 {
		f.streams = append(f.streams, &testedStream{
			ref: f.stream(fmt.Sprint("s", i)), acked: map[string]int64{}, undone: map[string]bool{}, finished: make(chan struct{}),
		})
	}
	return f
}

func (f *fire) run() {
	var writers, readers, sabotage sync.WaitGroup
	sabotage.Go(f.sabotage)
	for n, s := range f.streams {
		var own sync.WaitGroup
		for i := range fireWriters {
			own.Go(func() { f.write(s, fmt.Sprintf("%d.%d", n, i), f.chance(n, i)) })
		}
		for i := range fireReaders {
			readers.Go(func() { f.read(s, f.chance(n, 100+i)) })
		}
		writers.Go(func() {
			own.Wait()
			s.tail = int64(len(s.acked))
			close(s.finished)
		})
	}
	writers.Wait()
	close(f.writes)
	sabotage.Wait()
	readers.Wait()
	for _, s := range f.streams {
		f.compare(s)
	}
}

func (f *fire) chance(stream, who int) *rand.Rand {
	return rand.New(rand.NewPCG(f.seed, uint64(stream*1000+who)))
}

func (f *fire) server(r *rand.Rand) *stream.Log { return f.servers[r.IntN(len(f.servers))].Load() }

// write appends, in all the ways there are, until everything it wrote is acknowledged.
func (f *fire) write(s *testedStream, name string, r *rand.Rand) {
	for i := range fireWrites {
		var drafts []entry.Draft
		for n := range 1 + r.IntN(4) {
			id := fmt.Sprintf("%s.%d.%d", name, i, n)
			drafts = append(drafts, f.chat(id, id))
		}
		switch r.IntN(5) {
		case 0: // repeats an entry
			if id, ok := s.any(r); ok {
				drafts = append(drafts, f.chat(id, "another text"))
			}
			f.append(s, r, drafts)
		case 1:
			f.transact(s, r, drafts, nil)
		case 2:
			f.transact(s, r, drafts, errUndo)
		default:
			if r.IntN(4) == 0 {
				f.publish(s, r, drafts[0].ID)
			}
			f.append(s, r, drafts)
		}
		f.writes <- struct{}{}
	}
}

// append repeats an append on one server after another until one acknowledges it.
func (f *fire) append(s *testedStream, r *rand.Rand, drafts []entry.Draft) {
	for {
		got, err := f.server(r).Append(f.t.Context(), s.ref, drafts...)
		if err == nil {
			f.ack(s, drafts, got)
			return
		}
		if fault.CodeOf(err) != fault.Unavailable {
			f.t.Errorf("append: %s", fault.From(err).Detail())
			return
		}
	}
}

var errUndo = errors.New("undo")

// transact appends in a transaction that ends with end. If it is unknown whether it was committed, transact appends the
// drafts again.
func (f *fire) transact(s *testedStream, r *rand.Rand, drafts []entry.Draft, end error) {
	var got []entry.Entry
	err := f.DB.In(f.t.Context(), db.Scope{House: f.house}, func(tx pgx.Tx) (err error) {
		if got, err = f.server(r).AppendTx(f.t.Context(), tx, s.ref, drafts...); err != nil {
			return err
		}
		return end
	})
	switch {
	case end != nil: // it was certainly rolled back
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range drafts {
			s.undone[d.ID] = true
		}
	case err == nil:
		f.ack(s, drafts, got)
	case fault.CodeOf(err) == fault.Unavailable:
		f.append(s, r, drafts)
	default:
		f.t.Errorf("transaction: %s", fault.From(err).Detail())
	}
}

func (f *fire) publish(s *testedStream, r *rand.Rand, id string) {
	for offset := range int64(3) {
		err := f.server(r).Publish(f.t.Context(), s.ref, stream.Delta{EntryID: id, Offset: offset, Data: []byte("x")})
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			f.t.Errorf("publish: %s", fault.From(err).Detail())
		}
	}
}

// ack notes what was acknowledged; the same id must always get the same position.
func (f *fire) ack(s *testedStream, drafts []entry.Draft, got []entry.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(got) != len(drafts) {
		f.t.Errorf("%d drafts became %d entries", len(drafts), len(got))
		return
	}
	for i, e := range got {
		if e.ID != drafts[i].ID || text(e) != e.ID {
			f.t.Errorf("draft %s became entry %s saying %q", drafts[i].ID, e.ID, text(e))
		}
		if before, ok := s.acked[e.ID]; !ok {
			s.acked[e.ID] = e.Seq
			s.ids = append(s.ids, e.ID)
		} else if before != e.Seq {
			f.t.Errorf("%s was acknowledged at %d and at %d", e.ID, before, e.Seq)
		}
	}
}

func (s *testedStream) any(r *rand.Rand) (id string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return "", false
	}
	return s.ids[r.IntN(len(s.ids))], true
}

// read follows the stream from a random position to its end, leaving and coming back at random, also to
// the other server.
func (f *fire) read(s *testedStream, r *rand.Rand) {
	start := int64(r.IntN(50))
	cursor, seen := start, []string{}
	deadline := time.Now().Add(patience)
	for !s.over(cursor) {
		if time.Now().After(deadline) {
			f.t.Errorf("a reader is stuck at %d", cursor)
			return
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second) // so that it notices the end
		stay, told, caughtUp := r.IntN(80), map[string]bool{}, 0
		for ev, err := range f.server(r).Tail(ctx, s.ref, cursor) {
			if err != nil {
				// OutOfRange: it started past the end.
				if code := fault.CodeOf(err); code != fault.Unavailable && (code != fault.OutOfRange || len(seen) > 0) {
					f.t.Errorf("tail: %s", fault.From(err).Detail())
				}
				break
			}
			switch {
			case ev.Entry != nil:
				if ev.Entry.Seq != cursor+1 || ev.Seq != ev.Entry.Seq {
					f.t.Errorf("after %d came %d", cursor, ev.Entry.Seq)
				}
				cursor = ev.Entry.Seq
				seen = append(seen, ev.Entry.ID)
				told[ev.Entry.ID] = true
			case ev.Delta != nil:
				if told[ev.Delta.EntryID] {
					f.t.Errorf("a delta of %s came after the entry", ev.Delta.EntryID)
				}
			case ev.CaughtUp:
				caughtUp++
			}
			if stay--; stay == 0 || s.over(cursor) {
				break
			}
		}
		cancel()
		if caughtUp > 1 {
			f.t.Errorf("a tail caught up %d times", caughtUp)
		}
	}
	f.check(s, start, seen)
}

// over reports whether everything was written and read.
func (s *testedStream) over(cursor int64) bool {
	select {
	case <-s.finished:
		return cursor >= s.tail
	default:
		return false
	}
}

// check compares what a reader saw with what was acknowledged.
func (f *fire) check(s *testedStream, start int64, seen []string) {
	if int64(len(seen)) != s.tail-start {
		f.t.Errorf("a reader from %d to %d saw %d entries", start, s.tail, len(seen))
		return
	}
	for i, id := range seen {
		if s.acked[id] != start+int64(i)+1 {
			f.t.Errorf("a reader saw %s at %d, acknowledged at %d", id, start+int64(i)+1, s.acked[id])
		}
	}
}

// compare reads the whole log: each acknowledged entry is there once, at its position, and nothing else.
func (f *fire) compare(s *testedStream) {
	var all []entry.Entry
	for {
		page, tail, err := f.servers[0].Load().Read(f.t.Context(), s.ref, stream.Range{After: int64(len(all)), Limit: 70})
		if err != nil {
			f.t.Fatalf("reading it all: %s", fault.From(err).Detail())
		}
		if all = append(all, page...); int64(len(all)) == tail {
			break
		}
	}
	var ids []string
	for i, e := range all {
		ids = append(ids, e.ID)
		if e.Seq != int64(i+1) {
			f.t.Fatalf("entry %d is at position %d", i+1, e.Seq)
		}
		if s.undone[e.ID] {
			f.t.Errorf("%s is in the log, although it was rolled back", e.ID)
		}
		if e.Author != f.member || text(e) != e.ID {
			f.t.Errorf("%s says %q by %q", e.ID, text(e), e.Author)
		}
	}
	f.check(s, 0, ids)
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(all) {
		f.t.Error("an id is in the log twice")
	}
}

// sabotage cuts connections and restarts servers, at a pace that the writers set.
func (f *fire) sabotage() {
	r, owner := f.chance(0, 999), f.Owner(f.t)
	for n := 1; ; n++ {
		if _, more := <-f.writes; !more {
			return
		}
		if n%fireEvery != 0 {
			continue
		}
		victims := ""
		switch r.IntN(5) {
		case 0:
			f.restart(r.IntN(len(f.servers)))
			continue
		case 1:
			victims = "and application_name = 'arbe listen'"
		case 2:
			victims = "and state = 'active'"
		case 3:
			victims = "and random() < 0.3"
		}
		if _, err := owner.Exec(f.t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and usename <> current_user `+victims); err != nil {
			f.t.Errorf("sabotage: %v", err)
		}
	}
}

// restart replaces a server, which refuses all calls for a moment.
func (f *fire) restart(i int) {
	f.servers[i].Load().Close()
	for {
		l, err := stream.Open(f.t.Context(), f.DB, slog.New(slog.DiscardHandler))
		if err == nil {
			f.t.Cleanup(l.Close)
			f.servers[i].Store(l)
			return
		}
		if fault.CodeOf(err) != fault.Unavailable {
			f.t.Errorf("restart: %s", fault.From(err).Detail())
			return
		}
	}
}
