package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// named sends an id with each request, as a proxy would.
type named struct{ id string }

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Request-Id", n.id)
	return http.DefaultTransport.RoundTrip(r)
}

func TestTheLogSaysWhatEachLineIsAbout(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.LogLevel = slog.LevelDebug
	process := startProcess(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	say(t, c, thread, "a secret between us")
	command := run(t, c, thread, "echo hidden")
	awaitEntry(t, c, thread, command.ResultId)
	link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	b.login(login(t, cfg).Host + link.Path)

	entries := arbev1connect.NewEntryServiceClient(&http.Client{Transport: named{"proxy-1"}}, login(t, cfg).Host,
		connect.WithInterceptors(bearerOf(login(t, cfg).Token)))
	if _, err := entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread}); err != nil {
		t.Fatal(err)
	}
	if _, err := entries.List(t.Context(), &arbev1.ListRequest{ThreadId: "nowhere"}); arbe.RequestID(err) != "proxy-1" {
		t.Errorf("the error %v is of the request %q, want proxy-1", err, arbe.RequestID(err))
	}
	b.Transport = named{"proxy-2"}
	if page := b.get(login(t, cfg).Host + "/threads/" + thread); page.status != http.StatusOK {
		t.Fatalf("the page answers %d", page.status)
	}

	t.Run("an answer carries the request's id, which is the proxy's when it has the form of one", func(t *testing.T) {
		for given, kept := range map[string]bool{"proxy-3": true, "": false, "two words": false, "msg=\"forged\"": false, strings.Repeat("a", 129): false} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", login(t, cfg).Host+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := named{given}.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Get("X-Request-Id"); got == "" || (got == given) != kept {
				t.Errorf("%.20q becomes %q", given, got)
			}
		}
	})

	process.Process.Signal(os.Interrupt)
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for text := range strings.Lines(process.Stderr.(*bytes.Buffer).String()) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%q is no JSON: %v", text, err)
		}
		for _, secret := range []string{"a secret between us", "echo hidden", login(t, cfg).Token, strings.TrimPrefix(link.Path, "/login?token=")} {
			if strings.Contains(text, secret) {
				t.Errorf("a line repeats what it must not: %s", text)
			}
		}
		lines = append(lines, line)
	}
	has := func(want map[string]any) {
		t.Helper()
		for _, line := range lines {
			found := true
			for key, value := range want {
				found = found && line[key] == value
			}
			if found {
				return
			}
		}
		t.Errorf("no line says %v", want)
	}
	t.Run("of a call", func(t *testing.T) {
		has(map[string]any{"request": "proxy-1", "thread": thread, "path": arbev1connect.EntryServiceListProcedure, "status": 200.0})
	})
	t.Run("of a page, and of the calls that it takes", func(t *testing.T) {
		has(map[string]any{"request": "proxy-2", "path": "/threads/" + thread, "status": 200.0})
		has(map[string]any{"request": "proxy-2", "path": arbev1connect.ThreadServiceGetThreadProcedure, "thread": thread})
	})
	t.Run("of a command", func(t *testing.T) {
		has(map[string]any{"msg": "a command ended", "thread": thread, "command": command.Entry.Id, "exit_code": 0.0})
	})
}

func TestLogSettings(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"log_format": "xml", "log_level": "loud", "drain_timeout": "-1s"} {
		if _, _, err := server.Load(map[string]string{name: value, "data_dir": t.TempDir()}, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

// bearerOf sends a credential with each call.
func bearerOf(token string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+token)
			return next(ctx, req)
		}
	}
}
