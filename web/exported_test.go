package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestAThreadIsDownloadedAsADocumentOrAsJSON(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("keepkeep", "Größe\"; x=\r\n../../etc/passwd\u202e")
	f.says("keepkeep", f.me.Id, "abcdefgh", entry.Chat{Text: "keep <b>this</b>"})
	f.says("keepkeep", f.me.Id, "bcdefghi", entry.Command{Command: "make"})
	in := ada(t, f)
	if _, page := in.get("/threads/keepkeep"); !strings.Contains(page, `<a href="/threads/keepkeep/export?format=markdown" download>`) {
		t.Error("the page of the thread does not link its export")
	}
	for format, want := range map[string]struct{ kind, file, begins, holds string }{
		"markdown": {"text/markdown; charset=utf-8", "gr-e-x-etc-passwd-keepkeep.md", "# Größe", "> keep &lt;b>this&lt;/b>"},
		"json":     {"application/x-ndjson", "gr-e-x-etc-passwd-keepkeep.jsonl", `{"format":"arbe.thread","version":1,`, `"payload":{"text":"keep`},
	} {
		res, text := in.get("/threads/keepkeep/export?format=" + format)
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != want.kind || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the answer is %d with %v", format, res.StatusCode, res.Header)
		}
		if got := res.Header.Get("Content-Disposition"); got != `attachment; filename="`+want.file+`"` {
			t.Errorf("%s: the file is %s", format, got)
		}
		if !strings.HasPrefix(text, want.begins) || !strings.Contains(text, want.holds) {
			t.Errorf("%s: the file is %s", format, text)
		}
	}
	_, talk := in.get("/threads/keepkeep/export?format=talk")
	contains(t, talk, "# Größe", "> keep &lt;b>this&lt;/b>")
	lacks(t, talk, "make")
	_, lines := in.get("/threads/keepkeep/export?format=json")
	for line := range strings.Lines(lines) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is not JSON: %s", line)
		}
	}
	if n := strings.Count(lines, "\n"); n != 3 {
		t.Errorf("the file has %d lines, want the head and two entries", n)
	}
}

func TestAnExportIsWholeOrFails(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("longlong", "Long")
	for range 1001 { // more than one reading of the log
		f.says("longlong", f.me.Id, "", entry.Chat{Text: "hello"})
	}
	f.thread("hugehuge", "Huge").Tail = 100_001
	in := ada(t, f)
	for path, status := range map[string]int{
		"/threads/longlong/export":                 http.StatusBadRequest,
		"/threads/longlong/export?format=html":     http.StatusBadRequest,
		"/threads/nothing/export?format=json":      http.StatusNotFound,
		"/threads/hugehuge/export?format=markdown": http.StatusTooManyRequests,
	} {
		if res, text := in.get(path); res.StatusCode != status || res.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: the answer is %d: %s", path, res.StatusCode, text)
		}
	}
	if res, _ := (client{t: t, base: in.base}).get("/threads/longlong/export?format=json"); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/login" {
		t.Errorf("without a login, the answer is %d to %s", res.StatusCode, res.Header.Get("Location"))
	}

	// The log is read for its tail, twice for those who spoke, and twice for the document. Its second half fails.
	f.mu.Lock()
	f.called["List"] = 0
	f.broken["List 5"] = connect.NewError(connect.CodeUnavailable, io.ErrUnexpectedEOF)
	f.mu.Unlock()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, in.base+"/threads/longlong/export?format=json", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "arbe_session", Value: "good"})
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a part of a thread is a whole file of %d bytes", len(text))
	}
}
