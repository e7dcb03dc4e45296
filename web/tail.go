package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/starfederation/datastar-go/datastar"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// refreshEvery is how often the page around a log is compared with what the browser has.
	refreshEvery = 2 * time.Second
	// paintEvery is how often the screen of a running command is sent at most.
	paintEvery = 120 * time.Millisecond
	// maxReplay is how many entries a page catches up on one by one; behind a larger gap it loads pages.
	maxReplay = 200
	// maxScreens bounds how many commands one connection shows the output of at once.
	maxScreens = 16
)

// A live page has, behind its last row, the place of the next one: <div id="next-18">. The event of entry
// 18 replaces that place by the row and the place of entry 19. So an event that comes twice, from a retry
// or a second connection, finds its place gone and changes nothing, and one that would leave a gap finds no
// place yet. The event's id is the entry's position; the browser names the last one when it comes back.

// threadTail keeps a thread's page live.
func (a *app) threadTail(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		query.Set("after", last)
	}
	after, err := position(query, "after")
	if err != nil {
		return err
	}
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return a.endTail(w, r, "thread", err)
	}
	l, err := a.newLiveThread(w, r, res.Thread, after)
	if err != nil {
		return err
	}
	if behind := res.Thread.Tail - after; behind > maxReplay || behind < 0 {
		return l.rejoin(after, behind)
	}
	return l.follow(after)
}

// liveThread is one browser watching one thread.
type liveThread struct {
	app    *app
	r      *http.Request
	sse    *datastar.ServerSentEventGenerator
	thread *arbev1.Thread
	frame  frame
	log    *transcript
	// sent is what the browser has of the page around the log, by the element's id.
	sent map[string]string
	// screens are the commands that print, by the id their result will have; those in dirty changed
	// since they were painted.
	screens map[string]*liveScreen
	dirty   map[string]bool
}

func (a *app) newLiveThread(w http.ResponseWriter, r *http.Request, t *arbev1.Thread, after int64) (*liveThread, error) {
	f, err := a.frameOf(r, t.HouseId, t.Id)
	if err != nil {
		return nil, err
	}
	people, err := a.peopleOf(r.Context(), t.HouseId)
	if err != nil {
		return nil, err
	}
	return &liveThread{
		app: a, r: r, thread: t, frame: f, log: a.newTranscript(t, people),
		sse:  startSSE(w, r),
		sent: map[string]string{}, screens: map[string]*liveScreen{}, dirty: map[string]bool{},
	}, nil
}

func startSSE(w http.ResponseWriter, r *http.Request) *datastar.ServerSentEventGenerator {
	// A tail lives as long as its reader; a server's limit for answers is not for it. A writer that
	// knows no deadlines has none to lift.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	w.Header().Set("X-Accel-Buffering", "no")
	return datastar.NewSSE(w, r)
}

// follow sends what happens after a position until the reader leaves or the log ends.
func (l *liveThread) follow(after int64) error {
	ctx, cancel := context.WithCancel(l.r.Context())
	defer cancel()
	// One entry more than the browser lacks: the row before decides how the first one looks.
	stream, err := l.app.services.entries.Tail(ctx, &arbev1.TailRequest{ThreadId: l.thread.Id, After: max(after-1, 0)})
	if err != nil {
		return l.end(err)
	}
	defer func() { _ = stream.Close() }() // the reader left, or the stream ended: nobody asks any more

	events := make(chan *arbev1.TailResponse)
	ended := make(chan error, 1)
	go func() {
		for stream.Receive() {
			select {
			case events <- stream.Msg():
			case <-ctx.Done():
				return
			}
		}
		ended <- stream.Err()
	}()

	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	paint := time.NewTicker(paintEvery)
	defer paint.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return l.end(err)
		case event := <-events:
			err = l.take(ctx, event, after)
		case <-paint.C:
			err = l.paint()
		case <-refresh.C:
			err = l.refresh(ctx)
		}
		if err != nil {
			return l.end(err)
		}
	}
}

// take sends one event of the log on.
func (l *liveThread) take(ctx context.Context, event *arbev1.TailResponse, after int64) error {
	switch {
	case event.GetEntry() != nil:
		e := entryOf(event.GetEntry())
		if err := l.entry(ctx, e, e.Seq > after); err != nil || e.Type == "chat" {
			return err
		}
		return l.refresh(ctx) // what is not talk may have changed the thread or its box
	case event.GetDelta() != nil:
		l.delta(event.GetDelta())
	case event.GetCaughtUp() != nil:
		return l.refresh(ctx)
	}
	return nil
}

// entry sends one entry to its place. The one before the first that is new is only learned from.
func (l *liveThread) entry(ctx context.Context, e entry.Entry, isNew bool) error {
	r, err := l.log.row(ctx, e)
	if err != nil || !isNew {
		return err
	}
	if result, ok := entry.As[entry.CommandResult](e); ok {
		delete(l.screens, e.ID)
		delete(l.dirty, e.ID)
		v := commandView{
			Thread: l.thread.Id, ID: result.CommandID, Key: blockKey(result.CommandID),
			Seq: l.log.starts[result.CommandID].seq, Result: &result, ResultSeq: e.Seq,
		}
		if err := l.sse.PatchElementTempl(templ.Join(commandOutput(v), commandFoot(v))); err != nil {
			return err
		}
	}
	return l.sse.PatchElementTempl(templ.Join(entryRow(r), nextPlace(e.Seq+1)),
		datastar.WithSelectorID(nextID(e.Seq)), datastar.WithModeReplace(), datastar.WithPatchElementsEventID(strconv.FormatInt(e.Seq, 10)))
}

// delta keeps a piece of output for the next painting.
func (l *liveThread) delta(d *arbev1.Delta) {
	if !strings.HasSuffix(d.EntryId, entry.ResultID("")) {
		return
	}
	screen, ok := l.screens[d.EntryId]
	if !ok {
		if _, ended := l.log.ends[strings.TrimSuffix(d.EntryId, entry.ResultID(""))]; ended || len(l.screens) == maxScreens {
			return
		}
		screen = newLiveScreen()
		l.screens[d.EntryId] = screen
	}
	screen.Write(d.Offset, d.Data)
	l.dirty[d.EntryId] = true
}

// paint sends the screens that changed.
func (l *liveThread) paint() error {
	for id := range l.dirty {
		screen := l.screens[id]
		key := blockKey(strings.TrimSuffix(id, entry.ResultID("")))
		if err := l.sse.PatchElementTempl(liveOutput(key, screen.Text(), screen.Missed)); err != nil {
			return err
		}
	}
	clear(l.dirty)
	return nil
}

// refresh sends what changed around the log: places, the thread's head, its box. Something is always sent,
// so that the browser can tell a quiet server from a lost one.
func (l *liveThread) refresh(ctx context.Context) error {
	res, err := l.app.services.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: l.thread.Id})
	if err != nil {
		return err
	}
	l.thread = res.Thread
	if l.frame.Threads, _, err = l.app.threadsOf(ctx, l.thread.HouseId, ""); err != nil {
		return err
	}
	b, err := l.app.boxOf(ctx, l.thread, l.frame.House)
	if err != nil {
		return err
	}
	k, err := l.app.kinOf(ctx, l.thread)
	if err != nil {
		return err
	}
	changed, err := changes(ctx, l.sent, map[string]templ.Component{
		"title": pageTitle(windowTitle(l.thread, l.frame.House.Name)), "places": placesList(l.frame),
		"thread-head": threadHead(l.thread), "details": threadDetails(l.thread, b, k),
	})
	if err != nil {
		return err
	}
	return l.sse.PatchElements(changed + beat())
}

// changes renders parts of a page and returns those that differ from what was sent before.
func changes(ctx context.Context, sent map[string]string, parts map[string]templ.Component) (string, error) {
	var changed strings.Builder
	for id, part := range parts {
		text, err := rendered(ctx, part)
		if err != nil {
			return "", err
		}
		if sent[id] != string(text) {
			sent[id] = string(text)
			changed.Write(text)
		}
	}
	return changed.String(), nil
}

// beat is an element that is never the same twice.
func beat() string {
	return fmt.Sprintf(`<i id="beat" data-beat="%d" hidden></i>`, time.Now().UnixMilli())
}

// rejoin brings a page back that cannot be caught up entry by entry: one far behind goes on loading pages
// as they are read, one ahead of the log has to start anew.
func (l *liveThread) rejoin(after, behind int64) error {
	gap := newerPlace(l.thread.Id, after)
	if behind < 0 {
		gap = liveEnd("The log is shorter than this page.", "Open the thread again.", threadPath(l.thread.Id))
	}
	// The connection goes last, for with it the browser stops listening; and only that of this very
	// place, for a page may have made a new one meanwhile.
	l.last(l.sse.PatchElementTempl(gap, datastar.WithSelectorID(nextID(after+1)), datastar.WithModeReplace()),
		l.sse.RemoveElement(":is(#newer, .farewell) + #live"))
	return nil
}

// end says why a tail ends, if it ends for good. Otherwise the browser comes back by itself.
func (l *liveThread) end(err error) error {
	if l.r.Context().Err() != nil || err == nil {
		return nil
	}
	f := faultOf(err)
	if note := farewell(f, "thread"); note != nil {
		l.last(l.sse.PatchElementTempl(note, datastar.WithSelectorID("live"), datastar.WithModeReplace()))
		return nil
	}
	l.app.log.InfoContext(l.r.Context(), "web: a tail broke off", "thread", l.thread.Id, "error", f.Detail())
	return nil
}

// last waits, after what took the connection out of the page, for the browser to close it. Were the server
// first, the browser would take it for a lost one and come back for ever.
func (l *liveThread) last(sent ...error) {
	if errors.Join(sent...) != nil {
		return // the reader left
	}
	select {
	case <-l.r.Context().Done():
	case <-time.After(10 * time.Second):
	}
}

// endTail answers a tail that cannot start. What a retry cannot heal is told to the page, and ends it.
func (a *app) endTail(w http.ResponseWriter, r *http.Request, what string, err error) error {
	note := farewell(faultOf(err), what)
	if note == nil {
		return err
	}
	return a.patch(w, r, "#live", note)
}

// farewell is what a page says when its tail ends for good; nil when it may come back.
func farewell(f *fault.Error, what string) templ.Component {
	switch f.Code {
	case fault.NotFound, fault.Forbidden:
		return liveEnd("This "+what+" is gone.", "Go to your houses.", "/")
	case fault.Unauthenticated:
		return liveEnd("You are logged out.", "Log in again.", "/login")
	}
	return nil
}

func nextID(seq int64) string { return "next-" + strconv.FormatInt(seq, 10) }

// houseTail keeps the list of a house's threads live.
func (a *app) houseTail(w http.ResponseWriter, r *http.Request) error {
	f, err := a.frameOf(r, r.PathValue("house"), "")
	if err != nil {
		return a.endTail(w, r, "house", err)
	}
	sse, sent := startSSE(w, r), map[string]string{}
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		changed, err := changes(r.Context(), sent, map[string]templ.Component{"places": placesList(f), "threads": threadList(f)})
		if err != nil {
			return nil // the browser comes back and is told
		}
		if err := sse.PatchElements(changed + beat()); err != nil {
			return nil // the reader left
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-refresh.C:
		}
		if f.Threads, f.Next, err = a.threadsOf(r.Context(), f.House.Id, f.Page); err != nil {
			return nil // as above
		}
	}
}
