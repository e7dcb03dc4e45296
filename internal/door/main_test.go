package door_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) {
	for variable, process := range map[string]func(string) error{ordersVariable: watchAsOrdered, jobVariable: workAsOrdered} {
		if text := os.Getenv(variable); text != "" {
			if err := process(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	dbtest.Main(m)
}

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// world is a database with two unrelated houses, and a door to it.
type world struct {
	*dbtest.Database
	t        testing.TB
	ours     house
	stranger house
	auth     *auth.Auth
	longPoll time.Duration
	// authorize is the [door.Authorize] of the next server.
	authorize door.Authorize
	// dispatches makes the next server run commands. All fail, because it has no sandboxes.
	dispatches bool
	// log and url are the first server's.
	log *stream.Log
	url string
}

// house is a house with a member, a thread, and keys.
type house struct {
	id, member, thread string
	// key is the member's API key, and limited one that is valid only in this house.
	key, limited string
}

func (h house) stream() string { return "arbe-thread-" + h.thread }

func (h house) ref() stream.Ref { return stream.Ref{House: h.id, Name: h.stream()} }

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, dbtest.Reuse(t, 10), 50*time.Millisecond)
}

// newWorldOn is newWorld on a database. recheck is the time between two checks of a follower's permission.
func newWorldOn(t testing.TB, d *dbtest.Database, recheck time.Duration) *world {
	t.Helper()
	w := &world{Database: d, t: t, longPoll: 500 * time.Millisecond}
	w.auth = auth.New(auth.Config{DB: w.DB, Sealer: w.Sealer, Recheck: recheck})
	t.Cleanup(w.auth.Listen())
	w.authorize = door.Members(w.auth)
	w.ours, w.stranger = w.house("ours"), w.house("theirs")
	w.url, _ = w.serve()
	return w
}

// run runs a subtest in the same world.
func (w *world) run(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		own := *w
		own.t = t
		f(t, &own)
	})
}

// serve starts another server on the database, and returns how to stop it.
func (w *world) serve() (url string, stop func()) {
	w.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	log, err := stream.Open(w.t.Context(), w.DB, logger)
	if err != nil {
		w.t.Fatalf("opening the log: %s", fault.From(err).Detail())
	}
	if w.log == nil {
		w.log = log
	}
	var dispatcher *dispatch.Dispatcher
	if w.dispatches {
		threads := thread.New(w.DB, log)
		boxes := sandbox.NewResolver(sandbox.Config{DB: w.DB, Log: log, Threads: threads, Logger: logger})
		if dispatcher, err = dispatch.Start(w.t.Context(), dispatch.Config{DB: w.DB, Log: log, Threads: threads, Boxes: boxes, Logger: logger}); err != nil {
			w.t.Fatalf("starting the dispatcher: %s", fault.From(err).Detail())
		}
	}
	subscriptions := subscription.Start(subscription.Config{DB: w.DB, Log: log, Key: ed25519.NewKeyFromSeed(make([]byte, 32)), Logger: logger})
	d := door.New(door.Config{
		Log: log, Authorize: w.authorize, Subscriptions: subscriptions, Logger: logger, LongPoll: w.longPoll, Dispatcher: dispatcher,
	})
	server := httptest.NewServer(d)
	stop = func() {
		subscriptions.Close()
		if dispatcher != nil {
			if err := dispatcher.Stop(context.Background()); err != nil {
				w.t.Errorf("stopping the dispatcher: %v", err)
			}
			dispatcher = nil
		}
		log.Close()
		server.CloseClientConnections()
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			w.t.Errorf("there are still followers of a closed log: %v", err)
		}
	}
	w.t.Cleanup(stop)
	return server.URL + "/api/stream/", stop
}

func (w *world) house(name string) (h house) {
	w.t.Helper()
	owner := w.Owner(w.t)
	err := owner.QueryRow(w.t.Context(), `
		with h as (insert into houses (name) values ($1) returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id),
		     s as (insert into streams (house_id, name) select id, 'arbe-thread-' || id from h),
		     t as (insert into threads (id, house_id, stream_id) select id, id, 'arbe-thread-' || id from h)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'member' from h, a returning house_id, agent_id::text`, name).
		Scan(&h.id, &h.member)
	if err != nil {
		w.t.Fatal(err)
	}
	h.thread = h.id
	if h.key, err = w.auth.ReplaceKey(w.t.Context(), h.member, "test"); err != nil {
		w.t.Fatal(err)
	}
	h.limited = "arbe_limited_" + h.id
	w.exec("insert into api_keys (agent_id, house_id, name, hash) values ($1, $2, 'limited', $3)", h.member, h.id, digest(h.limited))
	return h
}

func digest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// exec runs a statement past row-level security.
func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	owner := w.Owner(w.t)
	if _, err := owner.Exec(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
	authtest.Heard(w.t, owner, w.auth)
}

// response is an answer whose body was read completely.
type response struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// do sends a request with our member's key. Headers are "Name: value".
func (w *world) do(method, name, body string, headers ...string) response {
	w.t.Helper()
	return w.at(w.url, method, name, body, append([]string{"Authorization: Bearer " + w.ours.key}, headers...)...)
}

// at sends a request to one server. A later header replaces an earlier one of the same name.
func (w *world) at(url, method, name, body string, headers ...string) response {
	w.t.Helper()
	res, err := http.DefaultClient.Do(w.request(url, method, name, body, headers...))
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response{w.t, res.StatusCode, res.Header, string(text)}.harmless()
}

func (w *world) request(url, method, name, body string, headers ...string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, url+name, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	return req
}

const (
	asJSON  = "Content-Type: application/json"
	asText  = "Content-Type: text/plain"
	closing = "Stream-Closed: true"
)

// append appends to the stream of a house's thread without the door.
func (w *world) append(h house, drafts ...entry.Draft) {
	w.t.Helper()
	if _, err := w.log.Append(w.t.Context(), h.ref(), drafts...); err != nil {
		w.t.Fatal(err)
	}
}

// make creates a stream.
func (w *world) make(name string, headers ...string) response {
	w.t.Helper()
	return w.do("PUT", name, "", append([]string{asText}, headers...)...).want(http.StatusCreated)
}

// post appends text.
func (w *world) post(name, text string, headers ...string) response {
	w.t.Helper()
	return w.do("POST", name, text, append([]string{asText}, headers...)...)
}

func (r response) want(status int) response {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

func (r response) wantOneOf(statuses ...int) response {
	r.t.Helper()
	if !slices.Contains(statuses, r.status) {
		r.t.Fatalf("status %d, want one of %v: %s", r.status, statuses, r.body)
	}
	return r
}

func (r response) holds(body string) response {
	r.t.Helper()
	if r.body != body {
		r.t.Fatalf("the body is %q, want %q", r.body, body)
	}
	return r
}

// says checks a header; an empty value means that there is none.
func (r response) says(name, value string) response {
	r.t.Helper()
	if got := r.header.Get(name); got != value {
		r.t.Fatalf("%s is %q, want %q", name, got, value)
	}
	return r
}

// harmless checks the headers for browsers and caches that every answer of the door has.
func (r response) harmless() response {
	r.t.Helper()
	for name, value := range map[string]string{
		"Content-Security-Policy":          "sandbox; default-src 'none'; frame-ancestors 'none'",
		"Content-Disposition":              "attachment",
		"X-Content-Type-Options":           "nosniff",
		"Cross-Origin-Resource-Policy":     "same-origin",
		"Access-Control-Allow-Origin":      "*",
		"Access-Control-Allow-Credentials": "",
		"Set-Cookie":                       "",
		"Vary":                             "Accept, Authorization, Arbe-House",
	} {
		r.says(name, value)
	}
	isPublic := r.header.Get("Content-Type") == "application/jwk-set+json" && r.status == http.StatusOK
	if caching := r.header.Get("Cache-Control"); !strings.HasPrefix(caching, "private") && !isPublic {
		r.t.Fatalf("Cache-Control is %q: a shared cache may keep it", caching)
	}
	return r
}

// failure returns the error in a response.
func (r response) failure() (f struct{ Code, Message, Next string }) {
	r.t.Helper()
	var body struct {
		Error struct{ Code, Message, Next string }
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.Error.Next == "" {
		r.t.Fatalf("the error does not say what to do next: %s", r.body)
	}
	return body.Error
}
