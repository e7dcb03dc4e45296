package runner_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// fakeDoor is the stream door and the model gateway for one run. It is strict: it accepts a record only with the
// run's token, in the order of the records' indexes, and a result only after its call.
type fakeDoor struct {
	t   *testing.T
	url string
	// thread is the id of the thread. It differs between tests, because runners recognize their processes by it.
	thread string

	mu      sync.Mutex
	changed chan struct{}
	log     []row
	ids     map[string]string
	// sent counts the accepted posts of each id.
	next  int
	ended bool
	beats []row
	text  map[string]string // of deltas
	// token is the valid token, and renew the one to hand out.
	token, renew string
	// status is the answer to every request; 0 is normal operation. drop cuts the connection after the entries were
	// stored.
	status int
	drop   int
	posts  int
	// poison is a text of entries with which posts are refused for good.
	poison string
	// beforeTaking runs once, before the runner's first take is checked. refused counts the refused takes.
	beforeTaking func()
	refused      int
}

type row struct {
	Seq     int64           `json:"seq"`
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Author  string          `json:"authorId,omitempty"`
	Payload json.RawMessage `json:"payload"`
	TS      time.Time       `json:"ts"`
}

const (
	self   = "bot-1"
	person = "ada-1"
)

func newDoor(t *testing.T, models string) *fakeDoor {
	d := &fakeDoor{t: t, changed: make(chan struct{}), ids: map[string]string{}, text: map[string]string{}, token: "token-one", thread: strings.ToLower(rand.Text())}
	to, err := url.Parse(models)
	if err != nil {
		t.Fatal(err)
	}
	gateway := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/model/test/", func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		token := d.token
		d.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "not the run's token", http.StatusUnauthorized)
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		http.StripPrefix("/api/model/test", gateway).ServeHTTP(w, r)
	})
	mux.HandleFunc("/api/stream/arbe-thread-"+d.thread, d.stream)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	d.url = server.URL
	return d
}

func (d *fakeDoor) stream(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	status, token, renew := d.status, d.token, d.renew
	d.mu.Unlock()
	if status == -1 {
		panic(http.ErrAbortHandler)
	}
	if status != 0 {
		http.Error(w, "as the test wants", status)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+token && (renew == "" || r.Header.Get("Authorization") != "Bearer "+renew) {
		http.Error(w, "another token", http.StatusForbidden)
		return
	}
	if renew != "" {
		w.Header().Set("Arbe-Stream-Token", renew)
	}
	if r.Method == http.MethodGet {
		d.get(w, r)
		return
	}
	var list []row
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		d.t.Errorf("a post is not an array of entries: %v", err)
		http.Error(w, err.Error(), 400)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.posts++
	for _, e := range list {
		if d.poison != "" && strings.Contains(string(e.Payload), d.poison) {
			http.Error(w, "never", http.StatusRequestEntityTooLarge)
			return
		}
	}
	for _, e := range list {
		if status := d.taken(e); status != 0 {
			http.Error(w, "it may not take that", status)
			return
		}
		d.accept(e)
	}
	if d.drop > 0 {
		d.drop--
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// taken checks a take as the server does. It returns the status of a refusal, or 0.
func (d *fakeDoor) taken(e row) int {
	var p struct {
		Type string
		entry.QueueTaken
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil || p.Type != p.QueueTaken.Type() || d.ids[e.ID] != "" {
		return 0
	}
	if f := d.beforeTaking; f != nil {
		d.beforeTaking = nil
		f()
	}
	if d.ended {
		return http.StatusForbidden
	}
	q := entry.NewQueue(self, 0)
	for _, e := range d.log {
		q.Learn(entry.Entry{Seq: e.Seq, ID: e.ID, Type: e.Type, Author: e.Author, Payload: e.Payload})
	}
	for _, id := range p.EntryIDs {
		if w, waits := q.Find(id); !waits || w.Version > p.Read {
			d.refused++
			return http.StatusPreconditionFailed
		}
	}
	return 0
}

// accept stores an entry of the run.
func (d *fakeDoor) accept(e row) {
	var p struct{ Type string }
	if err := json.Unmarshal(e.Payload, &p); err != nil || p.Type == "" {
		d.t.Errorf("entry %s has no type: %s", e.ID, e.Payload)
	}
	if e.Author != self {
		d.t.Errorf("entry %s is by %q", e.ID, e.Author)
	}
	if strings.Contains(string(e.Payload), "token-one") {
		d.t.Errorf("entry %s has the token: %s", e.ID, e.Payload)
	}
	e.Type = p.Type
	switch p.Type {
	case "signal.thread.heartbeat":
		d.beats = append(d.beats, e)
		d.wake()
		return
	case "pi.chunk":
		var c struct {
			Offset int64
			Data   string
		}
		if err := json.Unmarshal(e.Payload, &c); err != nil {
			d.t.Error(err)
		}
		if have := int64(len(d.text[e.ID])); c.Offset < have {
			d.t.Errorf("delta %s goes on at %d, and %d bytes are there", e.ID, c.Offset, have)
		}
		d.text[e.ID] += c.Data
		d.wake()
		return
	}
	if had, twice := d.ids[e.ID]; twice {
		if had != string(e.Payload) {
			d.t.Errorf("id %s is used twice: %s and %s", e.ID, had, e.Payload)
		}
		return
	}
	if d.ended {
		d.t.Errorf("%s %s comes after the report", e.Type, e.ID)
	}
	parts := strings.Split(e.ID, ".")
	switch {
	case len(parts) == 3:
		if n, _ := strconv.Atoi(parts[2]); n != d.next {
			d.t.Errorf("%s has index %d, and %d is expected", e.Type, n, d.next)
		}
		d.next++
	case e.Type == entry.QueueTaken{}.Type():
	case len(parts) == 5 && strings.HasPrefix(e.Type, "signal.permission."):
	case len(parts) != 4 || e.Type != "pi.tool_result" || d.ids[strings.Join(parts[:3], ".")] == "":
		d.t.Errorf("%s %s has a wrong id", e.Type, e.ID)
	}
	d.ended = d.ended || e.Type == "signal.thread.run_finished"
	d.append(e)
}

func (d *fakeDoor) append(e row) {
	d.ids[e.ID] = string(e.Payload)
	e.Seq, e.TS = int64(len(d.log)+1), time.Now()
	d.log = append(d.log, e)
	d.wake()
}

func (d *fakeDoor) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *fakeDoor) get(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.Atoi(strings.TrimSuffix(r.URL.Query().Get("offset"), "_0"))
	for {
		d.mu.Lock()
		changed, list := d.changed, d.log[max(after, 0):]
		d.mu.Unlock()
		if len(list) > 0 || r.URL.Query().Get("live") == "" {
			w.Header().Set("Stream-Next-Offset", fmt.Sprintf("%d_0", max(after, 0)+len(list)))
			w.Header().Set("Stream-Up-To-Date", "true")
			for _, e := range list {
				text, _ := json.Marshal(e)
				w.Write(append(text, '\n')) //nolint:errcheck // the runner may be killed
			}
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// say adds an entry of someone else, and returns its position.
func (d *fakeDoor) say(author, kind string, payload any) int64 {
	return d.sayAs("", author, kind, payload)
}

// sayAs adds an entry with an id; empty for any.
func (d *fakeDoor) sayAs(id, author, kind string, payload any) int64 {
	text, err := json.Marshal(payload)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.append(row{ID: cmp.Or(id, fmt.Sprintf("said-%d", len(d.log))), Type: kind, Author: author, Payload: text})
	return int64(len(d.log))
}

// chat adds a chat of a person.
func (d *fakeDoor) chat(text string) int64 {
	return d.say(person, "chat", map[string]string{"text": text})
}

// set changes the door.
func (d *fakeDoor) set(f func(*fakeDoor)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
	d.wake()
}

// await waits until a condition holds.
func (d *fakeDoor) await(ctx context.Context, what string, holds func() bool) {
	d.t.Helper()
	for {
		d.mu.Lock()
		changed, ok := d.changed, holds()
		d.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			d.t.Fatalf("waited in vain for %s; the log is\n%s", what, d.dump())
		}
	}
}

// has reports whether the log has an entry of a kind whose payload contains a text.
func (d *fakeDoor) has(kind, text string) func() bool {
	return func() bool {
		for _, e := range d.log {
			if e.Type == kind && strings.Contains(string(e.Payload), text) {
				return true
			}
		}
		return false
	}
}

func (d *fakeDoor) dump() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, e := range d.log {
		fmt.Fprintf(&b, "%d %s %s %.400s\n", e.Seq, e.ID, e.Type, e.Payload)
	}
	return b.String()
}
