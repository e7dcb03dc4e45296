package door

import (
	"context"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// maxTexts is how many texts of an event are kept: nearly all followers came within a few cursors' time, and a client
// may say that it has any.
const maxTexts = 4

// minPart is how many followers at least one goroutine tells, when several do.
const minPart = 64

// channel is what followers have in common whom one feed can tell.
type channel struct {
	stream int64
	ref    stream.Ref
	form
}

// feed tells followers what one tail of the log tells. It is the work of one goroutine.
//
// Whoever comes has a feed of its own, which waits for the client to take what it is told. Once it was told all
// there is, the feed hands it over to one that all such followers of a channel share, or becomes that one. A
// shared feed writes to everybody, and waits for nobody: who does not take a text at once gets a feed of its own
// again, with the rest of it. So an event costs a write for each follower, and no goroutine is woken for it.
type feed struct {
	channel
	door *Door
	// tail ends with stop.
	tail context.Context
	stop context.CancelFunc
	// end is where the stream was closed when the feed began; -1 when it was open. One that is closed later says
	// so in an event.
	end int64
	// waiting are entries to be sent in one data event.
	waiting []entry.Entry
	bytes   int
	// said is what the last control event said.
	said state
	// round are the followers who are being told.
	round []*follower

	// Once the feed is shared, the rest is changed under the lock of all feeds. Its goroutine, and those that help
	// it, read without what only it changes.

	followers []*follower
	// at is the position up to which all followers were told, or are being told.
	at     int64
	shared bool
}

// follower is one connection that follows a stream.
type follower struct {
	door *Door
	to   outlet
	// cursor is what the client shows when it comes again.
	cursor string
	// left is called once, after the last text.
	left func()

	// The rest is guarded by the lock of all feeds.

	feed  *feed
	place int // among the feed's followers
	gone  bool
}

// feeds are the shared ones.
type feeds struct {
	mu     sync.Mutex
	shared map[channel]*feed
}

// newFeed makes a feed that tells nobody anything yet.
func (d *Door) newFeed(c channel) *feed {
	f := &feed{channel: c, door: d, end: -1, said: state{seq: -1}}
	f.tail, f.stop = context.WithCancel(context.Background())
	return f
}

// tellTo adds a follower. Callers hold the lock, or the feed is not running yet.
func (f *feed) tellTo(w *follower) {
	w.feed, w.place = f, len(f.followers)
	f.followers = append(f.followers, w)
}

// run tells what events tell, until there are no more, or until the feed has nobody to tell.
func (f *feed) run(events iter.Seq2[stream.Event, error]) {
	defer f.finish()
	f.listen(events)
}

func (f *feed) listen(events iter.Seq2[stream.Event, error]) {
	for event, err := range events {
		if err != nil || !f.tell(event) {
			return
		}
	}
}

// finish lets go of all followers that are left.
func (f *feed) finish() {
	if p := recover(); p != nil { // of this feed alone, as it would be in the HTTP server
		f.door.Logger.Error("following a stream panicked", "panic", p, "stack", string(debug.Stack()))
	}
	f.stop()
	f.door.feeds.mu.Lock()
	f.unpublish()
	left := f.followers
	f.followers = nil
	for _, w := range left {
		w.gone = true
	}
	f.door.feeds.mu.Unlock()
	for _, w := range left {
		w.close()
	}
}

// unpublish keeps other feeds from handing over to this one. Callers hold the lock.
func (f *feed) unpublish() {
	if f.door.feeds.shared[f.channel] == f {
		delete(f.door.feeds.shared, f.channel)
	}
}

// end lets go of a follower. One with a feed of its own may be told a text to its end.
func (w *follower) end() {
	mu := &w.door.feeds.mu
	mu.Lock()
	f := w.feed
	if w.gone {
		mu.Unlock()
		return
	}
	w.gone = true
	if !f.shared {
		f.stop() // and its goroutine does the rest
		mu.Unlock()
		return
	}
	f.remove(w)
	mu.Unlock()
	w.close()
}

func (w *follower) close() {
	w.to.close()
	w.left()
}

// remove takes a follower away. Callers hold the lock.
func (f *feed) remove(w *follower) {
	last := len(f.followers) - 1
	f.followers[w.place] = f.followers[last]
	f.followers[w.place].place = w.place
	f.followers[last] = nil
	f.followers = f.followers[:last]
	if last == 0 {
		f.unpublish()
		f.stop()
	}
}

// tell sends an event, or keeps it to send it with the next one. It reports whether to tell more.
func (f *feed) tell(e stream.Event) bool {
	switch {
	case e.Entry != nil:
		f.waiting = append(f.waiting, *e.Entry)
		f.bytes += len(e.Entry.Payload)
		if e.More && f.bytes < maxFrame {
			return true
		}
		return f.send(state{e.Seq, !e.More, f.end == e.Seq})
	case e.CaughtUp && !(f.said.upToDate && f.said.seq == e.Seq):
		return f.send(state{e.Seq, true, f.end == e.Seq})
	case e.Closed && !f.said.closed:
		return f.send(state{e.Seq, true, true})
	}
	return true
}

// send sends what is waiting in a data event, if anything is, and the control event that follows it.
func (f *feed) send(s state) bool {
	data := f.data()
	clear(f.waiting) // and what it holds
	f.waiting, f.bytes = f.waiting[:0], 0
	if cap(f.waiting) > 1 {
		f.waiting = nil
	}
	f.said = s
	if f.shared {
		f.tellAll(data)
		return true
	}
	w := f.followers[0]
	if w.to.send(appendControl(data, s, w.cursor)) != nil {
		return false
	}
	f.at = s.seq
	return s.closed || !s.upToDate || !f.share()
}

// share makes the feed one that is shared, or hands its follower over to the one that is, and reports whether it
// did that. Neither is done when that one is not exactly as far, or when the follower must be waited for.
func (f *feed) share() (handedOver bool) {
	w := f.followers[0]
	conn, ok := w.to.(*connection)
	if !ok || conn.raw == nil || f.end >= 0 {
		return false
	}
	all := &f.door.feeds
	all.mu.Lock()
	defer all.mu.Unlock()
	other := all.shared[f.channel]
	switch {
	case w.gone, other != nil && other.at != f.at:
		return false // it is asked again with the next event
	case other != nil:
		f.followers = nil
		other.tellTo(w)
	default:
		if all.shared == nil {
			all.shared = map[channel]*feed{}
		}
		all.shared[f.channel], f.shared = f, true
	}
	return other != nil
}

// tellAll sends a data event, which may be empty, and what f.said to all followers.
func (f *feed) tellAll(data []byte) {
	f.door.feeds.mu.Lock()
	f.at = f.said.seq // who comes from now on was told this
	f.round = append(f.round[:0], f.followers...)
	if f.said.closed {
		f.unpublish()
	}
	f.door.feeds.mu.Unlock()
	processors := runtime.GOMAXPROCS(0)
	part := max(minPart, (len(f.round)+processors-1)/processors)
	if len(f.round) <= part {
		f.tellSome(f.round, data)
	} else {
		var parts sync.WaitGroup
		for some := range slices.Chunk(f.round, part) {
			parts.Go(func() { f.tellSome(some, data) })
		}
		parts.Wait()
	}
	clear(f.round)
}

// tellSome is tellAll for some of them.
func (f *feed) tellSome(some []*follower, data []byte) {
	var try attempt
	texts := map[string][]byte{} // by the cursor in them
	for _, w := range some {
		text := texts[w.cursor]
		if text == nil {
			text = appendControl(slices.Clip(data), f.said, w.cursor)
			if len(texts) < maxTexts {
				texts[w.cursor] = text
			}
		}
		n, err := try.on(w.to.(*connection), text)
		switch {
		case err != nil:
			w.end()
		case n < len(text):
			f.release(w, text[n:])
		}
	}
}

// release gives a follower a feed of its own, which begins with the rest of what it was to be told.
func (f *feed) release(w *follower, rest []byte) {
	own := f.door.newFeed(f.channel)
	own.at, own.said = f.at, f.said
	// This feed's tail runs: the new one's begins where it is.
	events, err := f.door.Log.Branch(own.tail, stream.Stream{ID: f.stream, Ref: f.ref}, own.at)
	if err != nil { // the stream was deleted
		own.stop()
		w.end()
		return
	}
	f.door.feeds.mu.Lock()
	defer f.door.feeds.mu.Unlock()
	if !w.gone {
		f.remove(w)
		own.tellTo(w)
	}
	go own.goOn(rest, events)
}

// goOn sends a text, and then what events tell. Without a follower it only lets go of them.
func (f *feed) goOn(text []byte, events iter.Seq2[stream.Event, error]) {
	defer f.finish()
	if len(f.followers) == 0 || f.followers[0].to.send(text) != nil || f.said.closed || f.said.upToDate && f.share() {
		f.stop()
	}
	f.listen(events)
}
