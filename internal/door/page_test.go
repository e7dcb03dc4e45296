package door_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/entry"
)

func TestALongStreamIsReadInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var messages []string
	fill := func(n int, message func(i int) string) {
		some := make([]string, n)
		for i := range some {
			some[i] = message(i)
		}
		messages = append(messages, some...)
		w.do("POST", "long", "["+strings.Join(some, ",")+"]", asJSON).want(204)
	}
	small := func(i int) string { return fmt.Sprintf("{\n\"n\": %d, \"text\": %q}", i, strings.Repeat("x", 150)) }
	large := func(i int) string { return fmt.Sprintf("%q", strings.Repeat("large", 1000*(i+1))) }
	w.do("PUT", "long", "", asJSON).want(201)
	fill(3000, small)
	fill(2, large)
	fill(2500, small)
	fill(60, large)
	fill(1500, small)
	// readAll reads the stream to its end.
	readAll := func(t *testing.T, accept string) (bodies []string) {
		t.Helper()
		for offset := "-1"; ; {
			res := w.do("GET", "long?offset="+offset, "", "Accept: "+accept).want(200)
			bodies = append(bodies, res.body)
			if res.header.Get("Stream-Up-To-Date") != "" {
				return bodies
			}
			offset = res.header.Get("Stream-Next-Offset")
		}
	}
	w.run(t, "as an array", func(t *testing.T, _ *world) {
		var all []string
		for _, body := range readAll(t, "application/json") {
			inner, isArray := strings.CutPrefix(strings.TrimSuffix(body, "]"), "[")
			if !isArray || inner == "" {
				t.Fatalf("a page is %.60q", body)
			}
			all = append(all, inner)
		}
		if strings.Join(all, ",") != strings.Join(messages, ",") {
			t.Error("it is not what was written")
		}
	})
	w.run(t, "as lines", func(t *testing.T, _ *world) {
		want := strings.ReplaceAll(strings.Join(messages, "\t")+"\t", "\n", " ")
		if strings.Join(readAll(t, "application/x-ndjson"), "") != strings.ReplaceAll(want, "\t", "\n") {
			t.Error("it is not what was written")
		}
	})
	w.run(t, "of a thread", func(t *testing.T, w *world) {
		drafts := make([]entry.Draft, 2500)
		for i := range drafts {
			drafts[i] = entry.Draft{Author: w.ours.member, Type: "chat", Payload: []byte(fmt.Sprintf(`{"text":"%d"}`, i))}
		}
		w.append(w.ours, drafts...)
		lines := strings.Split(strings.TrimSpace(w.do("GET", w.ours.stream(), "", "Accept: application/x-ndjson").want(200).says("Stream-Up-To-Date", "true").body), "\n")
		if len(lines) != len(drafts) {
			t.Fatalf("it has %d lines", len(lines))
		}
		for i, line := range lines {
			if !strings.Contains(line, fmt.Sprintf(`"text":"%d"`, i)) || !strings.HasPrefix(line, fmt.Sprintf(`{"seq":%d,`, i+1)) {
				t.Fatalf("line %d is %s", i, line)
			}
		}
	})
	w.run(t, "of bytes", func(t *testing.T, w *world) {
		w.make("bytes")
		var want strings.Builder
		for i := range 1100 {
			fmt.Fprintf(&want, "%d\x00\xff", i)
			w.post("bytes", fmt.Sprintf("%d\x00\xff", i)).want(204)
		}
		w.do("GET", "bytes", "").want(200).says("Stream-Up-To-Date", "true").holds(want.String())
	})
}

// hurdle is a response that calls meanwhile once the body's first bytes are written.
type hurdle struct {
	*httptest.ResponseRecorder
	meanwhile func()
}

func (h *hurdle) Write(p []byte) (int, error) {
	if h.meanwhile != nil {
		h.meanwhile()
		h.meanwhile = nil
	}
	return h.ResponseRecorder.Write(p)
}

// The headers were already sent. The client can only notice by the aborted response that the body is incomplete.
func TestAPageThatIsNotReadToItsEndIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	message := fmt.Sprintf("%q", strings.Repeat("x", 1000))
	refuse := func() {}
	for name, meanwhile := range map[string]func(){
		"deleted": func() { w.do("DELETE", "deleted", "").want(204) },
		"refused": func() { refuse() },
	} {
		w.run(t, name, func(t *testing.T, w *world) {
			w.do("PUT", name, "", asJSON).want(201)
			for range 5 {
				w.do("POST", name, "["+strings.Repeat(message+",", 999)+message+"]", asJSON).want(204)
			}
			d := door.New(door.Config{Log: w.log, Logger: slog.New(slog.DiscardHandler), Authorize: func(*http.Request, auth.Action, string) (door.Pass, error) {
				return door.Pass{Scope: db.Scope{House: w.ours.id, Agent: w.ours.member}, While: func(ctx context.Context) (context.Context, context.CancelFunc) {
					ctx, refuse = context.WithCancel(ctx)
					return ctx, refuse
				}}, nil
			}})
			res := &hurdle{httptest.NewRecorder(), meanwhile}
			defer func() {
				if cut := recover(); cut != http.ErrAbortHandler {
					t.Errorf("the request ends with %v", cut)
				}
				if text, _ := io.ReadAll(res.Result().Body); len(text) == 0 || strings.HasSuffix(string(text), "]") {
					t.Errorf("%d bytes look complete", len(text))
				}
			}()
			d.ServeHTTP(res, w.request("http://here/api/stream/", "GET", name, ""))
			t.Error("the response is complete")
		})
	}
}
