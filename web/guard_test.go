package web

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/transcript"
)

// strange is a body without a view.
type strange struct{}

func TestAnEntryThatCannotBeRenderedIsShownAsItIs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &app{log: slog.New(slog.NewTextHandler(&log, nil))}
	rows := a.rowsOf(t.Context(), []transcript.Row{
		{Entry: entry.Entry{Seq: 1, ID: "1"}, Body: transcript.Chat{HTML: "before"}},
		{Entry: entry.Entry{Seq: 2, ID: "2", Type: "test.strange", Payload: []byte(`{"text":"<script>"}`)}, Body: strange{}},
		{Entry: entry.Entry{Seq: 3, ID: "3"}, Body: transcript.Chat{HTML: "after"}},
	})
	page, err := rendered(t.Context(), logRows(window{Thread: "thread", Rows: rows}))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"before", "after", "test.strange", "&#34;&lt;script&gt;&#34;"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if !strings.Contains(log.String(), "there is no view of a web.strange") {
		t.Errorf("the log says %s", log.String())
	}
}

func TestAReaderWhoLeftIsNoErrorOfOurs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &app{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	left, leave := context.WithCancel(t.Context())
	leave()
	t.Run("while an entry is rendered", func(t *testing.T) {
		if r := a.rowOf(left, transcript.Row{Entry: entry.Entry{Seq: 1, ID: "1"}, Body: transcript.Chat{HTML: "hello"}}); r.View != nil {
			t.Error("it is rendered")
		}
	})
	t.Run("while the connection begins", func(t *testing.T) {
		r := httptest.NewRequestWithContext(left, http.MethodGet, "/live?t=house/home/", nil)
		a.open(a.live).ServeHTTP(&unflushable{httptest.NewRecorder()}, r)
	})
	t.Run("while live output is painted", func(t *testing.T) {
		thread := &arbev1.Thread{Id: "thread"}
		l := &liveThread{app: a, thread: thread, log: transcript.NewLive(a.sourceOf(nil), thread)}
		l.log.Delta(left, &arbev1.Delta{EntryId: "c.result", Data: []byte("text")})
		if err := l.paint(left); !errors.Is(err, context.Canceled) {
			t.Errorf("painting ends with %v", err)
		}
	})
	if log.Len() > 0 {
		t.Errorf("the log says %s", log.String())
	}
}

// unflushable is the answer to a browser that has left.
type unflushable struct{ *httptest.ResponseRecorder }

func (*unflushable) FlushError() error { return errors.New("broken pipe") }

func TestAPanicIsAnErrorPage(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &app{log: slog.New(slog.NewTextHandler(&log, nil))}
	for name, h := range map[string]handler{
		"in the handler": func(http.ResponseWriter, *http.Request) error { panic("a defect") },
		"in a goroutine of a group": func(_ http.ResponseWriter, r *http.Request) error {
			g, _ := guard.NewGroup(r.Context())
			g.Go(func() error { panic("a defect") })
			return g.Wait()
		},
		"in a goroutine behind the page": func(http.ResponseWriter, *http.Request) error {
			return <-guard.Background(func() error { panic("a defect") })
		},
	} {
		w := httptest.NewRecorder()
		a.open(h).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "a defect") || !strings.Contains(w.Body.String(), "Reference") {
			t.Errorf("%s: the answer is %d %s", name, w.Code, w.Body)
		}
	}
	if n := strings.Count(log.String(), "a defect"); n < 3 {
		t.Errorf("the log has the defect %d times", n)
	}
}

// A panic in a goroutine ends the whole process, so goroutines start only in package guard, which recovers panics.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range append(names, below...) {
		if strings.HasSuffix(name, "_test.go") || filepath.Dir(name) == "guard" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: use guard.Background", name)
			}
			return true
		})
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, "errgroup") {
				t.Errorf("%s imports %s: use guard.NewGroup", name, i.Path.Value)
			}
		}
	}
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}
