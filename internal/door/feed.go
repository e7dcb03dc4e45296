package door

import (
	"context"
	"iter"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/stream"
)

// maxCachedTexts is how many texts of an event are cached, by cursor. It is limited, because a client may claim any
// cursor. Nearly all followers share a few cursors.
const maxCachedTexts = 4

// minBroadcastPart is the smallest number of followers for which a goroutine is started. With fewer, starting it would
// cost more than it saves.
const minBroadcastPart = 64

// feedKey has the properties that followers of a shared feed have in common.
type feedKey struct {
	stream int64
	ref    stream.Ref
	form
}

// feed sends the events of one tail of the log to its followers. One goroutine runs it.
//
// A new follower has a feed of its own, which waits until the client has received each text. Once the follower has
// caught up, its feed hands it over to the feed that all such followers of a stream share, or becomes that feed. A
// shared feed writes to all its followers and waits for none: a follower that cannot receive a text at once gets a feed
// of its own again, which continues with the rest of the text.
//
// Feeds are shared and write to sockets themselves because a stream may have thousands of followers, which wait most of
// the time and then all get the same entry. An event is rendered once and costs one system call per follower. With one
// goroutine per follower that renders and writes each event, the median of 1,000 followers saw an entry 1.7 times as
// late on two processors, and each held 18 KiB of memory while it waited, instead of 10.
type feed struct {
	feedKey
	all *feeds
	// tail is the context of the feed's tail. stop ends it.
	tail context.Context
	stop context.CancelFunc
	// end is the position at which the stream was closed when the feed began; -1 if it was open. An event reports a
	// later close.
	end int64
	// waiting are entries to be sent in the next data event.
	waiting []entry.Entry
	bytes   int
	// lastControl is the content of the last control event.
	lastControl state
	// lease is the memory that the feed uses while it catches up; nil when it has. A shared feed needs none, because it
	// holds one text for all.
	lease *httpd.Lease
	// round are the followers of the current broadcast.
	round []*follower

	// Once the feed is shared, the fields below are changed only under the lock of all feeds. The feed's goroutine and its
	// helpers may read fields without the lock that only this goroutine changes.

	followers []*follower
	// at is the position up to which entries have been sent to all followers, or are being sent.
	at     int64
	shared bool
}

// follower is one connection that follows a stream.
type follower struct {
	all  *feeds
	body bodyWriter
	// member is the member of a house who follows.
	member string
	// cursor is the cursor that the client sends when it reconnects.
	cursor string
	// allowed is the context of the follower's permission.
	allowed context.Context
	// onEnd is called once, after the last text.
	onEnd func()

	// The lock of all feeds guards the fields below.

	feed  *feed
	index int // in the feed's followers
	gone  bool
}

// feeds are the feeds of a door.
type feeds struct {
	log    *stream.Log
	memory clientMemory
	logger *slog.Logger

	mu     sync.Mutex
	shared map[feedKey]*feed
}

// newFeed returns a feed without followers.
func (all *feeds) newFeed(c feedKey) *feed {
	f := &feed{feedKey: c, all: all, end: -1, lastControl: state{seq: -1}}
	// Not the context of a request, because the feed outlives the request.
	f.tail, f.stop = context.WithCancel(context.Background())
	return f
}

// addFollower adds a follower. Callers hold the lock, or the feed is not running yet.
func (f *feed) addFollower(w *follower) {
	w.feed, w.index = f, len(f.followers)
	f.followers = append(f.followers, w)
}

// run handles events until there are no more or the feed has no followers.
func (f *feed) run(events iter.Seq2[stream.Event, error]) {
	defer f.finish()
	f.listen(events)
}

func (f *feed) listen(events iter.Seq2[stream.Event, error]) {
	for event, err := range events {
		if err != nil || !f.handle(event) {
			return
		}
	}
}

// finish closes the connections of all remaining followers.
func (f *feed) finish() {
	if p := recover(); p != nil { // fail only this feed, as the HTTP server would fail only one request
		f.all.logger.Error("following a stream panicked", "panic", p, "stack", string(debug.Stack()))
	}
	f.stop()
	f.release()
	f.all.mu.Lock()
	f.unpublish()
	left := f.followers
	f.followers = nil
	for _, w := range left {
		w.gone = true
	}
	f.all.mu.Unlock()
	for _, w := range left {
		w.close()
	}
}

// unpublish prevents other feeds from handing over to this one. Callers hold the lock.
func (f *feed) unpublish() {
	if f.all.shared[f.feedKey] == f {
		delete(f.all.shared, f.feedKey)
	}
}

// end ends the connection of a follower. If the follower has a feed of its own, the current text may still be sent
// completely.
func (w *follower) end() {
	mu := &w.all.mu
	mu.Lock()
	f := w.feed
	if w.gone {
		mu.Unlock()
		return
	}
	w.gone = true
	if !f.shared {
		f.stop() // its goroutine does the rest
		mu.Unlock()
		return
	}
	f.remove(w)
	mu.Unlock()
	w.close()
}

func (w *follower) close() {
	w.body.close()
	w.onEnd()
}

// remove removes a follower. Callers hold the lock.
func (f *feed) remove(w *follower) {
	last := len(f.followers) - 1
	f.followers[w.index] = f.followers[last]
	f.followers[w.index].index = w.index
	f.followers[last] = nil
	f.followers = f.followers[:last]
	if last == 0 {
		f.unpublish()
		f.stop()
	}
}

// handle sends an event, or keeps it for the next data event. It reports whether to continue.
func (f *feed) handle(e stream.Event) bool {
	if e.More && !f.shared && f.lease == nil && len(f.followers) > 0 { // it has fallen behind
		lease, err := f.all.memory.hold(f.tail, f.followers[0].member, feedMemory)
		if err != nil {
			return false
		}
		f.lease = lease
	}
	switch {
	case e.Entry != nil:
		f.waiting = append(f.waiting, *e.Entry)
		f.bytes += len(e.Entry.Payload)
		if e.More && f.bytes < maxFrame {
			return true
		}
		return f.send(state{e.Seq, !e.More, f.end == e.Seq})
	case e.CaughtUp && !(f.lastControl.upToDate && f.lastControl.seq == e.Seq):
		return f.send(state{e.Seq, true, f.end == e.Seq})
	case e.Closed && !f.lastControl.closed:
		return f.send(state{e.Seq, true, true})
	}
	return true
}

// send sends the waiting entries, if any, in a data event, and then a control event.
func (f *feed) send(s state) bool {
	if len(f.waiting) > 0 && !f.confirm() {
		return false
	}
	data := f.data()
	clear(f.waiting) // release the entries' memory
	f.waiting, f.bytes = f.waiting[:0], 0
	// A feed that waits would otherwise keep the space of its largest event.
	if cap(f.waiting) > 1 {
		f.waiting = nil
	}
	f.lastControl = s
	if f.shared {
		f.broadcast(data)
		return true
	}
	w := f.followers[0]
	if w.body.send(appendControl(data, s, w.cursor)) != nil {
		return false
	}
	f.at = s.seq
	if s.upToDate {
		f.release()
	}
	return s.closed || !s.upToDate || !f.share()
}

// data returns the waiting entries as a data event; empty if there are none.
func (f *feed) data() []byte {
	if len(f.waiting) == 0 {
		return nil
	}
	made := body{form: f.form}
	for i := range f.waiting {
		made.add(&f.waiting[i])
	}
	return dataEvent(made.end(), f.binary)
}

// confirm ends the followers that may no longer receive the waiting entries, and reports whether to send them. It waits
// until every permission is certain.
func (f *feed) confirm() bool {
	known := time.Now()
	f.all.mu.Lock()
	all := slices.Clone(f.followers)
	f.all.mu.Unlock()
	for _, w := range all {
		if auth.StillAllowed(w.allowed, known) != nil {
			if w.end(); !f.shared {
				return false
			}
		}
	}
	return true
}

// release releases the feed's memory.
func (f *feed) release() {
	f.lease.Release()
	f.lease = nil
}

// share makes this feed the shared one, or hands its follower over to the shared feed and reports that it did. It does
// neither if the shared feed is at another position, because the follower would miss or repeat entries, or if the
// follower's connection cannot be written without waiting.
func (f *feed) share() (handedOver bool) {
	w := f.followers[0]
	conn, ok := w.body.(*connection)
	if !ok || conn.raw == nil || f.end >= 0 {
		return false
	}
	all := f.all
	all.mu.Lock()
	defer all.mu.Unlock()
	other := all.shared[f.feedKey]
	switch {
	case w.gone, other != nil && other.at != f.at:
		return false // tried again with the next event
	case other != nil:
		f.followers = nil
		other.addFollower(w)
	default:
		all.shared[f.feedKey], f.shared = f, true
	}
	return other != nil
}

// broadcast sends a data event, which may be empty, and the last control event to all followers.
func (f *feed) broadcast(data []byte) {
	f.all.mu.Lock()
	f.at = f.lastControl.seq // a follower that joins from now on has already received this
	f.round = append(f.round[:0], f.followers...)
	if f.lastControl.closed {
		f.unpublish()
	}
	f.all.mu.Unlock()
	processors := runtime.GOMAXPROCS(0)
	part := max(minBroadcastPart, (len(f.round)+processors-1)/processors)
	if len(f.round) <= part {
		f.broadcastTo(f.round, data)
	} else {
		var parts sync.WaitGroup
		for some := range slices.Chunk(f.round, part) {
			parts.Go(func() { f.broadcastTo(some, data) })
		}
		parts.Wait()
	}
	// Otherwise the slice would keep the memory of followers that have left.
	clear(f.round)
}

// broadcastTo is broadcast to some of the followers.
func (f *feed) broadcastTo(some []*follower, data []byte) {
	var try attempt
	texts := map[string][]byte{} // by the cursor that they contain
	for _, w := range some {
		text := texts[w.cursor]
		if text == nil {
			// Clip makes append copy, because other cursors and goroutines use the same data.
			text = appendControl(slices.Clip(data), f.lastControl, w.cursor)
			if len(texts) < maxCachedTexts {
				texts[w.cursor] = text
			}
		}
		n, err := try.on(w.body.(*connection), text)
		switch {
		case err != nil:
			w.end()
		case n < len(text):
			f.detach(w, text[n:])
		}
	}
}

// detach gives a follower a feed of its own, which begins with the rest of the text that could not be sent at once.
func (f *feed) detach(w *follower, rest []byte) {
	own := f.all.newFeed(f.feedKey)
	own.at, own.lastControl = f.at, f.lastControl
	if own.lease = f.all.memory.Try(w.member, int64(len(rest))); own.lease == nil { // a broadcast must not wait for memory
		own.stop()
		w.end()
		return
	}
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if !w.gone {
		f.remove(w)
		own.addFollower(w)
	}
	go own.resume(rest)
}

// resume sends a text, and then the log after it. Without a follower it does nothing.
func (f *feed) resume(text []byte) {
	defer f.finish()
	if len(f.followers) == 0 || f.followers[0].body.send(text) != nil {
		return
	}
	f.release()
	if f.lastControl.closed || f.lastControl.upToDate && f.share() {
		return
	}
	events, err := f.all.log.StartTail(f.tail, stream.Stream{ID: f.stream, Ref: f.ref}, f.at)
	if err != nil { // for example, the stream was deleted: a follower that reconnects gets the error
		return
	}
	f.listen(events)
}
