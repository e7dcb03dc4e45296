package embedded_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestAStoppedDatabaseIsFoundAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when missing")

	first := start(t, dir)
	run(t, first.URL(), `create table notes (text text); insert into notes values ('kept')`)
	stop(t, first)
	if err := first.Err(); err != nil {
		t.Errorf("after Stop, Err is %v, want nil", err)
	}

	second := start(t, dir)
	if got := ask(t, second.URL(), `select text from notes`); got != "kept" {
		t.Errorf("found %q, want what was written before the stop", got)
	}
	if first.URL() != second.URL() {
		t.Errorf("the URL changed from %s to %s", first.URL(), second.URL())
	}
}

// start starts the database in dir and stops it when the test ends.
func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), config(dir))
	if err != nil {
		t.Fatalf("start: %s", detail(err))
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func config(dir string) embedded.Config {
	return embedded.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func stop(t *testing.T, server *embedded.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Errorf("stop: %s", detail(err))
	}
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask(t *testing.T, url, sql string) string {
	t.Helper()
	var answer string
	if err := connect(t, url).QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// detail is the whole of an error, its cause included.
func detail(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Detail()
	}
	return err.Error()
}

