package web

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// Kinds whose renderers panic, for the tests of what that does to a page.
func init() {
	kinds["test.panics"] = kind{said, func(context.Context, *transcript, entry.Entry) templ.Component { panic("a defect") }}
	kinds["test.panics_late"] = kind{said, func(context.Context, *transcript, entry.Entry) templ.Component {
		return templ.ComponentFunc(func(context.Context, io.Writer) error { panic("a late defect") })
	}}
}

func TestAnEntryThatCannotBeRenderedIsShownAsItIs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"test.panics", "test.panics_late"} {
		var log bytes.Buffer
		a := &app{log: slog.New(slog.NewTextHandler(&log, nil))}
		people := &people{known: map[string]author{"": {Name: "arbe"}}}
		piece := []entry.Entry{
			{Seq: 1, ID: "1", Type: "chat", Payload: []byte(`{"text":"before"}`)},
			{Seq: 2, ID: "2", Type: kind, Payload: []byte(`{"text":"<script>"}`)},
			{Seq: 3, ID: "3", Type: "chat", Payload: []byte(`{"text":"after"}`)},
		}
		rows, err := a.newTranscript(&arbev1.Thread{Id: "thread"}, people).rows(t.Context(), piece, 3)
		if err != nil {
			t.Fatal(err)
		}
		page, err := rendered(t.Context(), rowsOf(window{Thread: "thread", Rows: rows}))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"before", "after", kind, "&#34;&lt;script&gt;&#34;"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s: the page lacks %q", kind, part)
			}
		}
		if !strings.Contains(log.String(), "a defect") && !strings.Contains(log.String(), "a late defect") {
			t.Errorf("the log says %s", log.String())
		}
	}
}

func TestAReaderWhoLeftIsNoErrorOfOurs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &app{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	left, leave := context.WithCancel(t.Context())
	leave()
	t.Run("while an entry is rendered", func(t *testing.T) {
		people := &people{known: map[string]author{"": {Name: "arbe"}}}
		e := entry.Entry{Seq: 1, ID: "1", Type: "chat", Payload: []byte(`{"text":"hello"}`)}
		if _, err := a.newTranscript(&arbev1.Thread{Id: "thread"}, people).row(left, e); err != nil {
			t.Error(err)
		}
	})
	t.Run("while the connection begins", func(t *testing.T) {
		r := httptest.NewRequestWithContext(left, http.MethodGet, "/live?t=house/home/", nil)
		a.open(a.live).ServeHTTP(&unflushable{httptest.NewRecorder()}, r)
	})
	t.Run("while live output is painted", func(t *testing.T) {
		l := &liveThread{
			app: a, thread: &arbev1.Thread{Id: "thread"},
			log:     a.newTranscript(&arbev1.Thread{Id: "thread"}, nil),
			screens: map[string]*markup.LiveOutput{"c.result": markup.NewLiveOutput()}, dirty: map[string]bool{"c.result": true},
		}
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
			g, _ := newGroup(r.Context())
			g.Go(func() error { panic("a defect") })
			return g.Wait()
		},
		"in a goroutine behind the page": func(http.ResponseWriter, *http.Request) error {
			return <-background(func() error { panic("a defect") })
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

func TestLiveOutputThatCannotBeRenderedIsGivenUp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &app{log: slog.New(slog.NewTextHandler(&log, nil))}
	l := &liveThread{
		app: a, thread: &arbev1.Thread{Id: "thread"},
		log:     a.newTranscript(&arbev1.Thread{Id: "thread"}, nil),
		screens: map[string]*markup.LiveOutput{"c.result": {}}, dirty: map[string]bool{}, // a screen with a defect: it has no rows
	}
	for range 2 {
		l.delta(t.Context(), &arbev1.Delta{EntryId: "c.result", Data: []byte("text")})
		if err := l.paint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "live output cannot be rendered"); n != 1 {
		t.Errorf("the log says it %d times: %s", n, log.String())
	}
}

func TestAnAbortedHandlerStaysAborted(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("it panics with %v", p)
		}
	}()
	_ = guarded(func() error { panic(http.ErrAbortHandler) })
}

func TestGuardedKeepsTheError(t *testing.T) {
	t.Parallel()
	want := errors.New("an error")
	if err := guarded(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
}

// A panic in a goroutine ends the whole process, so goroutines start only in guard.go, which recovers panics.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "guard.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: use background", name)
			}
			return true
		})
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, "errgroup") {
				t.Errorf("%s imports %s: use newGroup", name, i.Path.Value)
			}
		}
	}
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}
