package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/starfederation/datastar-go/datastar"
)

// A browser holds one connection, however many tabs it has, because over HTTP/1.1 browsers open only six to a server.
// script/connection.js shares it. The connection follows topics, the parts of pages that change:
//
//	house/{id}    the places of a house, on each of its pages
//	list/{id}     the first page of a house's list of threads
//	mine/{id}     the reader's inbox of a house
//	bots/{id}     the list of a house's bots
//	names/{id}    the people and bots of a house whom the menu of a text offers
//	thread/{id}   the log of a thread, its head and its details
//
// A topic has a cursor that identifies the state on the page: the position of the last entry for a thread, and a digest for
// every other topic. Events carry the new cursor. A browser that reconnects sends the last cursor that it received, so that
// it misses nothing.

const (
	// beatEvery is how often a quiet connection sends a beat. The script treats a silence of more than twice this time as a
	// lost connection.
	beatEvery = 20 * time.Second
	// maxTopics limits the topics of one connection, and maxFollowed those of all connections of one session.
	maxTopics, maxFollowed = 100, 4096
)

// topic names a part of a page, with the cursor of the browser's state.
type topic struct{ kind, id, cursor string }

// name identifies the topic: "thread/th4w7q2m9x".
func (t topic) name() string { return t.kind + "/" + t.id }

// String returns the name and the cursor, as pages contain them.
func (t topic) String() string { return t.name() + "/" + t.cursor }

// topicsOf reads the topics of a query.
func topicsOf(q url.Values) ([]topic, error) {
	var topics []topic
	seen := map[string]bool{}
	for _, text := range q["t"] {
		kind, rest, _ := strings.Cut(text, "/")
		id, cursor, _ := strings.Cut(rest, "/")
		t := topic{kind, id, cursor}
		if !slices.Contains([]string{"house", "list", "mine", "bots", "names", "thread"}, kind) || id == "" {
			return nil, fault.Newf(fault.Invalid, "use house, list, mine, bots, names or thread with an id, such as thread/th4w7q2m9x", "t: %q is no topic", clip(text, 80))
		}
		if !seen[t.name()] {
			seen[t.name()] = true
			topics = append(topics, t)
		}
	}
	if len(topics) == 0 || len(topics) > maxTopics {
		return nil, fault.Newf(fault.Invalid, fmt.Sprintf("follow from 1 to %d topics", maxTopics), "t: %d topics", len(topics))
	}
	return topics, nil
}

// patch is a change of a page: Datastar applies HTML to the elements that Selector finds.
type patch struct {
	Selector string `json:"s"`
	// Mode is a patch mode of Datastar; empty is "outer", which morphs the elements.
	Mode string `json:"m,omitempty"`
	HTML string `json:"h,omitempty"`
}

// event is a change of a topic. The first event of a topic says that it is live.
type event struct {
	Topic   string  `json:"t"`
	Cursor  string  `json:"c,omitempty"`
	Patches []patch `json:"p,omitempty"`
	// End reports that this is the topic's last event.
	End bool `json:"end,omitempty"`
}

func (e event) line() (string, error) {
	text, err := json.Marshal(e)
	return string(text), err
}

// The types of server-sent events. Each data line of the first is an [event]. The second only shows that the connection works.
const (
	topicsEvent datastar.EventType = "topics"
	beatEvent   datastar.EventType = "beat"
)

// following counts the topics that each session follows through this server. The zero value is ready to use. It is safe for
// concurrent use.
type following struct {
	mu sync.Mutex
	by map[string]int
}

// enter counts n more topics of a session until leave is called. If there are too many, it returns a [fault.Exhausted].
func (f *following) enter(session string, n int) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[session]+n > maxFollowed {
		return nil, fault.New(fault.Exhausted, "this session has too many pages open", "close some of them")
	}
	if f.by == nil {
		f.by = map[string]int{}
	}
	f.by[session] += n
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.by[session] -= n; f.by[session] == 0 {
			delete(f.by, session)
		}
	}, nil
}

// liveConn is one browser's connection. It is safe for concurrent use.
type liveConn struct {
	// leave ends the connection's context, and with it everything that follows a topic.
	leave context.CancelFunc

	sse *datastar.ServerSentEventGenerator

	mu   sync.Mutex
	last time.Time
}

// newLiveConn begins an answer of events. It recovers from panics, because Datastar panics if the browser has left before the
// headers are sent.
func newLiveConn(w http.ResponseWriter, r *http.Request, leave context.CancelFunc) (c *liveConn, err error) {
	// Without this header, nginx buffers the events.
	w.Header().Set("X-Accel-Buffering", "no")
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%v", p)
		}
	}()
	return &liveConn{leave: leave, sse: datastar.NewSSE(w, r), last: time.Now()}, nil
}

// write sends events in one write. If that fails, the reader has left, and it ends the connection.
func (c *liveConn) write(kind datastar.EventType, lines ...string) {
	if err := c.sse.Send(kind, lines); err != nil {
		c.leave()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
}

func (c *liveConn) send(e event) error {
	text, err := e.line()
	if err != nil {
		return err
	}
	c.write(topicsEvent, text)
	return nil
}

// beat sends a beat whenever the connection was quiet for beatEvery, until ctx ends, so that the browser can tell a
// quiet connection from a lost one.
func (c *liveConn) beat(ctx context.Context) error {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		c.mu.Lock()
		quiet := time.Since(c.last)
		c.mu.Unlock()
		if quiet >= beatEvery {
			c.write(beatEvent)
			quiet = 0
		}
		timer.Reset(beatEvery - quiet)
	}
}

// end ends a topic because of err. If reconnecting would not help, it says so on the page. Otherwise it returns the error,
// which ends the connection, and the browser reconnects.
func (c *liveConn) end(ctx context.Context, t topic, what string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		return fault.New(fault.Unavailable, "a stream ended", "connect again")
	}
	note := farewell(faultOf(err), what)
	if note == nil {
		return err
	}
	p, err := replaced(ctx, "#live", note)
	if err != nil {
		return err
	}
	return c.send(event{Topic: t.name(), Patches: []patch{p}, End: true})
}

// farewell returns the message that a page shows when a topic ends for good, or nil if reconnecting may help.
func farewell(f *fault.Error, what string) templ.Component {
	switch f.Code {
	case fault.NotFound, fault.Forbidden:
		return liveEnd("This "+what+" is gone.", "Go to your houses.", "/")
	case fault.Unauthenticated:
		return liveEnd("You are logged out.", "Log in again.", "/login")
	}
	return nil
}

// replaced returns the patch that replaces what selector finds by a component.
func replaced(ctx context.Context, selector string, with templ.Component) (patch, error) {
	text, err := rendered(ctx, with)
	return patch{Selector: selector, Mode: "replace", HTML: string(text)}, err
}
