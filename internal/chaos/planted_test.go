//go:build linux

package chaos

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// These runs break the promise on purpose, with a real server, a real Postgres and the clients of the scenarios:
// a check that finds nothing in them would find nothing at all.

func TestAPlantedBugIsFound(t *testing.T) {
	t.Parallel()

	t.Run("Postgres acknowledges what it did not write to its disk, and is killed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, *chance, scenario{servers: 1})
		w.db.execute(w, "alter system set synchronous_commit = off", "alter system set wal_writer_delay = '10s'", "select pg_reload_conf()")
		wr := w.newWriter(200, &rpc{w})
		// Postgres sometimes writes in the background in time, so one try may lose nothing.
		for n := range 20 {
			w.restartServers()
			for i := range 3 {
				wr.appendBatch(10*n + i)
			}
			w.db.kill(w, true)
			w.db.start(w)
			if found := kinds(Check(w.finish())); slices.Contains(found, Lost) {
				return
			}
		}
		w.Error("nothing acknowledged was lost, or the check did not find it")
	})

	for _, c := range []struct {
		name  string
		plant func(lie *liar)
		kind  Kind
	}{
		{"an append is acknowledged, and not done", func(lie *liar) { lie.swallow = 5 }, Lost},
		{"an append is done twice", func(lie *liar) { lie.double = 5 }, Doubled},
		{"an event is sent twice", func(lie *liar) { lie.repeat = 5 }, Repeated},
		{"an event is left out", func(lie *liar) { lie.omit = 5 }, Skipped},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, *chance, scenario{servers: 1})
			lie := &liar{}
			c.plant(lie)
			lie.between(w)
			w.followBy("events", w.threadLog, (*follower).events)
			wr := w.newWriter(200, &posts{w})
			wr.rng = rand.New(rand.NewPCG(1, 0))
			for n := range 20 {
				records, events := len(w.logs()[w.threadLog]), lie.events.Load()
				wr.appendBatch(n)
				if len(w.logs()[w.threadLog]) > records {
					w.await("an event contains it", resumeWithin, func() bool { return lie.events.Load() > events })
				}
			}
			if found := kinds(Check(w.finish())); !slices.Contains(found, c.kind) {
				t.Errorf("the check found %q, want %q among them", found, c.kind)
			}
		})
	}
}

func kinds(found []Violation) (all []Kind) {
	for _, v := range found {
		all = append(all, v.Kind)
	}
	return all
}

// restartServers restarts the servers: what they remember of the records that Postgres lost would hide the loss.
func (w *world) restartServers() {
	for _, s := range w.servers {
		s.process.kill()
		s.start()
	}
}

// liar is a proxy between the clients and a server that falsifies one request or event of each kind: the one with
// this number, counted from 1; 0 is none.
type liar struct {
	swallow, double, repeat, omit int64

	appends, events atomic.Int64
}

// between puts the proxy in front of the only server.
func (l *liar) between(w *world) {
	s := w.servers[0]
	to, err := url.Parse(s.url)
	if err != nil {
		w.Fatal(err)
	}
	honest := httputil.NewSingleHostReverseProxy(to)
	honest.FlushInterval = -1
	honest.ModifyResponse = func(res *http.Response) error {
		if res.Header.Get("Content-Type") == "text/event-stream" {
			res.Body = l.distort(res.Body)
		}
		return nil
	}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			switch l.appends.Add(1) {
			case l.swallow:
				rw.WriteHeader(http.StatusNoContent)
				return
			case l.double: // with other ids, so that the server cannot recognize the repeat
				again := s.request(r.Context(), r.Method, w.threadLog, []byte(strings.ReplaceAll(string(body), `"id":"`, `"id":"again-`)))
				again.URL.Host, again.Host = to.Host, to.Host
				again.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(again)
				if err != nil {
					w.report("%v", err)
					return
				}
				res.Body.Close()
			}
		}
		honest.ServeHTTP(rw, r)
	}))
	w.Cleanup(front.Close)
	w.Cleanup(front.CloseClientConnections)
	s.url = front.URL
}

// distort passes events on, but one of them twice or not at all.
func (l *liar) distort(body io.ReadCloser) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		defer body.Close()
		lines := bufio.NewReaderSize(body, 64<<10)
		var event strings.Builder
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				in.CloseWithError(err)
				return
			}
			if event.WriteString(line); line != "\n" {
				continue
			}
			text := event.String()
			event.Reset()
			if strings.HasPrefix(text, "event: data\n") {
				switch l.events.Add(1) {
				case l.repeat:
					text += text
				case l.omit:
					text = ""
				}
			}
			if _, err := io.WriteString(in, text); err != nil {
				return
			}
		}
	}()
	return out
}
