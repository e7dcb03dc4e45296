package web

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/transcript"
)

// maxReplay limits the entries that a page catches up on one by one. A page that is further behind loads pages of entries.
const maxReplay = 200

// After its last row, a live page has the place of the next one: <div id="next-18">. The event of entry 18 replaces that
// place by the row and the place of entry 19. So an event that arrives twice, after a retry or over a second connection,
// finds no place and changes nothing. An event that would leave a gap changes nothing either.

// followThread keeps a thread's log, head and details live.
func (a *app) followThread(ctx context.Context, c *liveConn, t topic) error {
	after, err := strconv.ParseInt(t.cursor, 10, 64)
	if err != nil || after < 0 {
		return c.end(ctx, t, "thread", fault.Newf(fault.NotFound, "open the thread again", "%q is not a position in a log", clip(t.cursor, 40)))
	}
	res, err := a.services.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: t.id})
	if err != nil {
		return c.end(ctx, t, "thread", err)
	}
	people, err := a.peopleOf(ctx, res.Thread.HouseId)
	if err != nil {
		return c.end(ctx, t, "thread", err)
	}
	l := &liveThread{
		app: a, conn: c, topic: t, thread: res.Thread, people: people, log: transcript.NewLive(a.sourceOf(people), res.Thread),
		typing: newTypists(),
	}
	if behind := res.Thread.Tail - after; behind > maxReplay || behind < 0 {
		return l.rejoin(ctx, after, behind)
	}
	return l.follow(ctx, after)
}

// follow sends what happens after a position until the reader leaves or the log ends.
func (l *liveThread) follow(ctx context.Context, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Begin with an entry that the browser already has, because the look of the next row depends on it.
	stream, err := l.app.services.entries.Tail(ctx, &arbev1.TailRequest{ThreadId: l.thread.Id, After: max(after-1, 0)})
	if err != nil {
		return l.conn.end(ctx, l.topic, "thread", err)
	}
	defer func() { _ = stream.Close() }() // nothing to handle: the stream's end was reported, or the reader left

	events := make(chan *arbev1.TailResponse)
	ended := guard.Background(func() error {
		for stream.Receive() {
			select {
			case events <- stream.Msg():
			case <-ctx.Done():
				return nil
			}
		}
		return stream.Err()
	})
	here := &subscriber{session: ctx, topic: l.topic}
	around := l.app.watches.join("thread/"+l.thread.Id, func() *sharedWatch { return l.app.threadWatch(l.thread) }, here)
	defer l.app.watches.leave(around, here)

	present := l.watchPresence(ctx)
	paint := time.NewTimer(transcript.PaintEvery)
	var painted time.Time
	defer paint.Stop()
	defer l.typing.over.Stop()
	for {
		var step func() error
		painting := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return l.conn.end(ctx, l.topic, "thread", err)
		case event := <-events:
			step = func() error { return l.take(ctx, event, after) }
		case <-here.pending:
			step = func() error { return l.conn.pass(around, here) }
		case agents := <-present:
			step = func() error { return l.showPresence(ctx, agents) }
		case <-l.typing.over.C:
			step = func() error { return l.typedNoMore(ctx, "") }
		case <-paint.C:
			step, painting = func() error { return l.paint(ctx) }, true
			painted = time.Now()
		}
		clean := painting || !l.log.Changed()
		if err := guard.Run(step); err != nil {
			return l.conn.end(ctx, l.topic, "thread", err)
		}
		if clean && l.log.Changed() {
			paint.Reset(max(transcript.PaintEvery-time.Since(painted), 0)) // the first piece is shown at once
		}
	}
}

// take handles one event of the log.
func (l *liveThread) take(ctx context.Context, e *arbev1.TailResponse, after int64) error {
	switch {
	case e.GetEntry() != nil:
		added := transcript.Entry(e.GetEntry())
		if err := l.entry(ctx, added, added.Seq > after); err != nil {
			return err
		}
		return l.typedNoMore(ctx, added.Author)
	case e.GetTyping() != nil:
		return l.typed(ctx, e.GetTyping().AgentId)
	case e.GetDelta() != nil:
		l.log.Delta(ctx, e.GetDelta())
	case e.GetCaughtUp() != nil:
		return l.conn.send(event{Topic: l.topic.name()})
	}
	return nil
}

// entry sends one entry to its place. It does not send known entries, which only affect the rows after them.
func (l *liveThread) entry(ctx context.Context, e entry.Entry, isNew bool) error {
	if !isNew {
		_, err := l.log.Learn(ctx, e)
		return err
	}
	var patches []patch
	r, err := l.log.Take(ctx, e, func(c transcript.Change) error {
		changed, err := l.app.patchesOf(ctx, e, c)
		patches = append(patches, changed...)
		return err
	})
	if err != nil {
		return err
	}
	waits, err := l.queuePatch(ctx, e)
	if err != nil {
		return err
	}
	asked, err := l.asksPatch(ctx, e)
	if err != nil {
		return err
	}
	patches = append(append(patches, waits...), asked...)
	if p := transcript.PlanIn(r.Body); p != nil {
		now, err := one(ctx, "#plan", "", planStrip(p))
		if err != nil {
			return err
		}
		patches = append(patches, now...)
	}
	row, err := replaced(ctx, "#"+nextID(e.Seq), templ.Join(entryRow(l.app.rowOf(ctx, r)), nextPlace(e.Seq+1)))
	if err != nil {
		return err
	}
	return l.conn.send(event{Topic: l.topic.name(), Cursor: strconv.FormatInt(e.Seq, 10), Patches: append(patches, row)})
}

// paint sends what changed since the last paint.
func (l *liveThread) paint(ctx context.Context) error {
	return l.log.Paint(ctx, func(c transcript.Change) error {
		patches, err := l.app.patchesOf(ctx, entry.Entry{}, c)
		if err != nil || len(patches) == 0 {
			return err
		}
		return l.conn.send(event{Topic: l.topic.name(), Patches: patches})
	})
}

// rejoin handles a page that cannot catch up entry by entry. A page that is far behind loads pages of entries as its reader
// scrolls. A page that is ahead of the log must be opened again.
func (l *liveThread) rejoin(ctx context.Context, after, behind int64) error {
	gap := newerPlace(l.thread.Id, after)
	if behind < 0 {
		gap = liveEnd("The log is shorter than this page.", "Open the thread again.", threadPath(l.thread.Id))
	}
	p, err := replaced(ctx, "#"+nextID(after+1), gap)
	if err != nil {
		return err
	}
	// A page without #live follows nothing. Only the element at this place is removed, because the page may have created
	// another one in the meantime.
	return l.conn.send(event{Topic: l.topic.name(), Patches: []patch{p, {Selector: ":is(#newer, .farewell) ~ #writing", Mode: "remove"}, {Selector: ":is(#newer, .farewell) + #live", Mode: "remove"}}, End: true})
}

// typed shows that somebody is writing, if that is a member other than the reader.
func (l *liveThread) typed(ctx context.Context, agent string) error {
	if me, err := l.reader(ctx); err != nil || agent == me {
		return err
	}
	if err := l.people.Meet(ctx, agent); err != nil {
		return err
	}
	if who := l.people.ByID(agent); who.Left || who.System || who.Name == unknownAgent {
		return nil
	}
	_, shown := l.typing.until[agent]
	l.typing.until[agent] = time.Now().Add(typingLasts)
	l.typing.next()
	if shown {
		return nil
	}
	return l.showTyping(ctx)
}

// typedNoMore removes typists whose time is over, and the agent who has just said something.
func (l *liveThread) typedNoMore(ctx context.Context, said string) error {
	before := len(l.typing.until)
	if before == 0 {
		return nil
	}
	for agent, until := range l.typing.until {
		if agent == said || !until.After(time.Now()) {
			delete(l.typing.until, agent)
		}
	}
	l.typing.next()
	if len(l.typing.until) == before {
		return nil
	}
	return l.showTyping(ctx)
}

func (l *liveThread) showTyping(ctx context.Context) error {
	var names []string
	for agent := range l.typing.until {
		names = append(names, clip(cmp.Or(l.people.ByID(agent).Name, "Somebody"), 40))
	}
	slices.Sort(names)
	p, err := replaced(ctx, "#typing", typingLine(typingText(names)))
	if err != nil {
		return err
	}
	return l.conn.send(event{Topic: l.topic.name(), Patches: []patch{p}})
}
