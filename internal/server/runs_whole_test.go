package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// counted counts the bytes that are read of endless content.
type counted struct{ read atomic.Int64 }

func (c *counted) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	c.read.Add(int64(len(p)))
	return len(p), nil
}

// The whole text of a result reaches the real door before the entry that has only a part of it. The door takes it only from
// the thread's own run, for one of that run's entries, and only up to a size.
func TestAWholeResultThroughTheDoor(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	var err error
	if cfg.SecretKey, err = secret.NewKey(); err != nil {
		t.Fatal(err)
	}
	s := start(t, cfg)
	c := client(t, cfg)
	mine, other := newThread(t, c), newThread(t, c)
	th, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: mine})
	if err != nil {
		t.Fatal(err)
	}
	token, foreign := runToken(t, cfg, th.Thread.HouseId, mine), runToken(t, cfg, th.Thread.HouseId, other)
	post := func(bearer, query, contentType string, body io.Reader, size int64) (status int, text string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/api/stream/arbe-thread-"+mine+query, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		if req.ContentLength = size; bearer != "" {
			req.Header.Set("Authorization", "Bearer "+bearer)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		said, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		return res.StatusCode, string(said), err
	}
	keep := func(bearer, id, text string) (int, string) {
		t.Helper()
		status, said, err := post(bearer, "?"+url.Values{"whole": {id}}.Encode(), "text/plain; charset=utf-8", strings.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		return status, said
	}
	kept := func() (n int) {
		t.Helper()
		list, err := c.Artifacts.ListArtifacts(t.Context(), &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: mine}})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Artifacts)
	}

	id := entry.RunEntryID(1, 0)
	for name, refused := range map[string]struct {
		bearer, id, text string
		status           int
	}{
		"without a token":             {"", id, "x", http.StatusUnauthorized},
		"with another thread's token": {foreign, id, "x", http.StatusForbidden},
		"with a token that is forged": {token + "x", id, "x", http.StatusUnauthorized},
		"of another run":              {token, entry.RunEntryID(2, 0), "x", http.StatusUnprocessableEntity},
		"under a path":                {token, "../" + id, "x", http.StatusUnprocessableEntity},
		"without a text":              {token, id, "", http.StatusUnprocessableEntity},
		"by a person":                 {login(t, cfg).Token, id, "x", http.StatusConflict},
	} {
		if status, said := keep(refused.bearer, refused.id, refused.text); status != refused.status || said == "" {
			t.Errorf("%s: status %d, want %d: %s", name, status, refused.status, said)
		}
	}
	const large = 200 << 20
	for name, size := range map[string]int64{"that says so": large, "that does not say so": -1} {
		content := &counted{}
		status, said, err := post(token, "?"+url.Values{"whole": {id}}.Encode(), "text/plain", io.LimitReader(content, large), size)
		if err == nil && (status != http.StatusRequestEntityTooLarge || !strings.Contains(said, "16777216 bytes")) {
			t.Errorf("a text of 200 MB %s: status %d: %s", name, status, said)
		}
		if read := content.read.Load(); read > 40<<20 {
			t.Errorf("of a text of 200 MB %s, %d bytes were sent", name, read)
		}
	}
	if n := kept(); n > 0 {
		t.Fatalf("%d texts are kept of what was refused", n)
	}

	whole := strings.Repeat("a line of output\n", 500_000)        // 8.5 MB
	for _, text := range []string{whole, whole, "another text"} { // a retry is harmless
		if status, said := keep(token, id, text); status != http.StatusNoContent {
			t.Fatalf("keeping answers %d: %s", status, said)
		}
	}
	payload := map[string]any{"type": "pi.tool_result", "harness": "pi", "toolCallId": "1", "toolName": "bash", "content": []any{map[string]any{"type": "text", "text": "a line"}},
		"details": map[string]any{"wholeBytes": 7}}
	text, _ := json.Marshal(map[string]any{"id": id, "ts": "2026-01-01T00:00:00Z", "payload": payload})
	if status, said, err := post(token, "", "application/json", bytes.NewReader(text), int64(len(text))); err != nil || status/100 != 2 {
		t.Fatalf("the entry is answered with %d: %s %v", status, said, err)
	}
	var details *entry.PiDetails
	for e, err := range c.Tail(t.Context(), mine, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEntry().GetId() == id {
			details = decode[entry.PiToolResult](t, e.GetEntry()).Details
			break
		}
	}
	if details == nil || details.WholeBytes != int64(len(whole)) || kept() != 1 {
		t.Fatalf("the entry names %+v, and %d texts are kept", details, kept())
	}
	holds(t, c, details.ArtifactID, whole)
}
