package server_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

// ask returns what a server answers at a path without a credential.
func ask(t *testing.T, s *server.Server, path string) page {
	t.Helper()
	res, err := http.Get(s.URL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return page{res.StatusCode, string(text)}
}

// becomes waits until a path answers with this status.
func becomes(t *testing.T, s *server.Server, path string, status int) page {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer := ask(t, s, path)
		if answer.status == status {
			return answer
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answers %d %q, want %d", path, answer.status, answer.body, status)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.DatabaseURL = dbtest.Migrated(t)
	s := start(t, cfg)
	t.Run("a server that serves is live and ready", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz"} {
			if got := ask(t, s, path); got.status != http.StatusOK || got.body != "ok\n" {
				t.Errorf("%s answers %d %q", path, got.status, got.body)
			}
		}
	})
	t.Run("without its database it is live, not ready, and ready again afterwards", func(t *testing.T) {
		other, err := pgx.Connect(t.Context(), dbtest.Migrated(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close(t.Context()) })
		url, err := pgx.ParseConfig(cfg.DatabaseURL)
		if err != nil {
			t.Fatal(err)
		}
		name := pgx.Identifier{url.Database}.Sanitize()
		allow := func(connections string) {
			t.Helper()
			if _, err := other.Exec(t.Context(), "alter database "+name+" allow_connections "+connections); err != nil {
				t.Fatal(err)
			}
		}
		allow("false")
		if _, err := other.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", url.Database); err != nil {
			t.Fatal(err)
		}
		if got := becomes(t, s, "/readyz", http.StatusServiceUnavailable); !strings.Contains(got.body, "database cannot be reached") || strings.Contains(got.body, url.Database) {
			t.Errorf("it says %q", got.body)
		}
		if got := ask(t, s, "/healthz"); got.status != http.StatusOK {
			t.Errorf("/healthz answers %d %q", got.status, got.body)
		}
		allow("true")
		becomes(t, s, "/readyz", http.StatusOK)
	})
	t.Run("one that stops is not ready, and answers until it has stopped", func(t *testing.T) {
		if err := s.Drain(t.Context()); err != nil {
			t.Fatalf("draining: %s", fault.From(err).Detail())
		}
		if got := ask(t, s, "/readyz"); got.status != http.StatusServiceUnavailable || got.body != "the server is stopping\n" {
			t.Errorf("/readyz answers %d %q", got.status, got.body)
		}
		if got := ask(t, s, "/healthz"); got.status != http.StatusOK {
			t.Errorf("/healthz answers %d %q", got.status, got.body)
		}
		c := client(t, cfg)
		say(t, c, newThread(t, c), "still heard")
	})
}

func TestSIGTERMWaitsForCommandsThatEndInTime(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.DatabaseURL, cfg.DrainTimeout = dbtest.Migrated(t), time.Minute
	process := startProcess(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	command := run(t, c, thread, "echo started; sleep 2; echo ended")
	awaitDelta(t, c, thread, command.ResultId)
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	// No other server continues the command, so the first server wrote everything in the log.
	conn, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var payload []byte
	if err := conn.QueryRow(t.Context(), "select payload from entries where id = $1", command.ResultId).Scan(&payload); err != nil {
		t.Fatalf("the log has no result of the command: %v", err)
	}
	if r, ok := entry.As[entry.CommandResult](entry.Entry{Type: entry.CommandResult{}.Type(), Payload: payload}); !ok || r.ExitCode != 0 || r.Output != "started\nended\n" {
		t.Errorf("the result is %s", payload)
	}
}
