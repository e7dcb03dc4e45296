package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/server"
)

// An operator learns what is wrong with an installation, and what to do about it.
func TestExamine(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.DatabaseURL = dbtest.Empty(t)
	none := func(string) string { return "" }
	// expect runs an examination, and asserts the verdict on a part and some words about it.
	expect := func(t *testing.T, cfg server.Config, part string, want server.Verdict, words string) {
		t.Helper()
		for _, f := range server.Examine(t.Context(), cfg, none) {
			if f.Part != part {
				continue
			}
			if f.Status != want || !strings.Contains(f.Says+" → "+f.Next, words) {
				t.Errorf("of %s it says %s: %s → %s; want %s: %s", part, f.Status, f.Says, f.Next, want, words)
			}
			if (f.Status == server.Problem || f.Status == server.Warning) && f.Next == "" {
				t.Errorf("of %s it does not say what to do: %s", part, f.Says)
			}
			return
		}
		t.Errorf("it says nothing of %s", part)
	}
	expect(t, cfg, "migrations", server.Warning, "the database is empty → start arbe serve")
	expect(t, cfg, "secret key", server.Untried, "the first start creates one")
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	expect(t, cfg, "migrations", server.Fine, "are applied")
	expect(t, cfg, "secret key", server.Fine, "secret.key opens what is sealed")
	expect(t, cfg, "role", server.Fine, "cannot bypass row-level security")

	other := cfg
	if other.SecretKey, err = server.NewSecretKey(); err != nil {
		t.Fatal(err)
	}
	expect(t, other, "secret key", server.Problem, "ARBE_SECRET_KEY")
	other = cfg
	other.DatabaseURL = "postgres://127.0.0.1:1/arbe"
	expect(t, other, "database", server.Problem, "127.0.0.1:1")
	other = cfg
	other.Local.Runtime, other.Local.FreeMB = "no-such-runtime", 1<<40
	expect(t, other, "sandbox runtime", server.Problem, "no-such-runtime, which is not installed → install it")
	expect(t, other, "disk", server.Problem, "free space")
	other = cfg
	other.PublicURL = "http://127.0.0.1:1"
	expect(t, other, "address", server.Problem, "does not lead to an arbe server")
	elsewhere := httptest.NewServer(nil)
	defer elsewhere.Close()
	other.PublicURL = elsewhere.URL
	expect(t, other, "address", server.Problem, "/healthz answers 404")

	owner, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context())
	if _, err := owner.Exec(t.Context(), "do $$ begin execute (select format('alter role %I bypassrls', 'arbe_server_' || oid) from pg_database where datname = current_database()); end $$"); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "role", server.Problem, "bypasses row-level security")
	if _, err := owner.Exec(t.Context(), "update migration_digests set sha256 = 'other' where version = 1"); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "migrations", server.Problem, "another development build")
}
