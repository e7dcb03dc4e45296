package server_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// workingTrees returns the names of the directories of the sandboxes in a data directory.
func workingTrees(t *testing.T, cfg server.Config, folder string) (ids []string) {
	t.Helper()
	dirs, err := os.ReadDir(filepath.Join(cfg.DataDir, "local", folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		ids = append(ids, d.Name())
	}
	return ids
}

// output runs a command in a thread and returns what it prints.
func output(t *testing.T, cfg server.Config, thread, line string) string {
	t.Helper()
	c := client(t, cfg)
	command := run(t, c, thread, line)
	r := decode[entry.CommandResult](t, awaitEntry(t, c, thread, command.ResultId))
	return r.Output + r.Error
}

// outputs runs lines of shell in one command, each in a shell of its own, and returns what each prints.
func outputs(t *testing.T, cfg server.Config, thread string, lines ...string) []string {
	t.Helper()
	const end = "=== the next line ==="
	all := output(t, cfg, thread, "(\n"+strings.Join(lines, "\n) 2>&1\necho -n '"+end+"'\n(\n")+"\n) 2>&1")
	each := strings.Split(all, end)
	if len(each) != len(lines) {
		t.Fatalf("%d lines of shell print %q", len(lines), all)
	}
	return each
}

func stop(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatalf("stopping: %v", err)
	}
}

// copyDatabase replaces a database with a copy of another one, which nobody must be using. Restoring a dump has the same effect.
func copyDatabase(t *testing.T, from, to string) {
	t.Helper()
	name := func(text string) (*url.URL, string) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u, strings.TrimPrefix(u.Path, "/")
	}
	u, old := name(to)
	_, original := name(from)
	u.Path = "/postgres"
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, statement := range []string{
		"drop database " + pgx.Identifier{old}.Sanitize() + " with (force)",
		"create database " + pgx.Identifier{old}.Sanitize() + " template " + pgx.Identifier{original}.Sanitize(),
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestADataDirectoryAndAnotherDatabase(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	first := start(t, cfg)
	thread := newThread(t, client(t, cfg))
	output(t, cfg, thread, "echo work > f")
	stop(t, first)
	trees := workingTrees(t, cfg, "boxes")
	if len(trees) != 1 {
		t.Fatalf("there are the working trees %v, want one", trees)
	}

	populated := settings(t)
	populated.DatabaseURL = dbtest.Empty(t) // migrated databases are copies, and would be of one installation
	stop(t, start(t, populated))
	for what, databaseURL := range map[string]string{
		"that is empty": dbtest.Empty(t), "of another installation": populated.DatabaseURL, "that would be an embedded one": "",
	} {
		t.Run(what+" is refused before anything is touched", func(t *testing.T) {
			wrong := cfg
			wrong.DatabaseURL = databaseURL
			_, err := server.Start(t.Context(), wrong)
			if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "DATABASE_URL") || !strings.Contains(err.Error(), cfg.DataDir) {
				t.Errorf("the start says %v", err)
			}
			if left := workingTrees(t, cfg, "boxes"); !slices.Equal(left, trees) {
				t.Errorf("the working trees are %v, want %v", left, trees)
			}
			if _, err := os.Stat(filepath.Join(cfg.DataDir, "postgres")); err == nil {
				t.Error("an embedded Postgres was made")
			}
		})
	}
	t.Run("finds all with its own one again", func(t *testing.T) {
		start(t, cfg)
		if got := output(t, cfg, thread, "cat f"); got != "work\n" {
			t.Errorf("the file is %q", got)
		}
	})
}

func TestADatabaseRestoredToAnEarlierTime(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	s := start(t, cfg)
	before := newThread(t, client(t, cfg))
	output(t, cfg, before, "echo before > f")
	given := newThread(t, client(t, cfg))
	output(t, cfg, given, "true")
	known := workingTrees(t, cfg, "boxes")
	stop(t, s)
	older := cfg
	older.DatabaseURL = dbtest.Empty(t)
	copyDatabase(t, cfg.DatabaseURL, older.DatabaseURL)

	s = start(t, cfg)
	after := newThread(t, client(t, cfg))
	output(t, cfg, after, "echo after > f")
	newer := slices.DeleteFunc(workingTrees(t, cfg, "boxes"), func(id string) bool { return slices.Contains(known, id) })
	if _, err := client(t, cfg).Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: given}); err != nil {
		t.Fatal(err)
	}
	stop(t, s)

	s = start(t, older)
	t.Run("has its sandboxes", func(t *testing.T) {
		if got := output(t, older, before, "cat f"); got != "before\n" {
			t.Errorf("the file is %q", got)
		}
	})
	t.Run("gives a new sandbox for one that was destroyed since", func(t *testing.T) {
		if got := output(t, older, given, "echo works"); got != "works\n" {
			t.Errorf("the command says %q", got)
		}
	})
	t.Run("has those that it does not know in quarantine", func(t *testing.T) {
		if kept := workingTrees(t, cfg, "quarantine"); !slices.Equal(kept, newer) || len(newer) != 1 {
			t.Errorf("in quarantine there is %v, want %v", kept, newer)
		}
	})
	stop(t, s)
	t.Run("loses nothing: with the newer one back, all is there", func(t *testing.T) {
		start(t, cfg)
		if got := output(t, cfg, after, "cat f"); got != "after\n" {
			t.Errorf("the newer file is %q", got)
		}
		if got := output(t, cfg, before, "cat f"); got != "before\n" {
			t.Errorf("the older file is %q", got)
		}
		if kept := workingTrees(t, cfg, "quarantine"); slices.Contains(kept, newer[0]) {
			t.Errorf("in quarantine there is still %v", kept)
		}
	})
}

func TestMigratingWithoutServing(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.DatabaseURL = dbtest.Empty(t)
	if err := server.Migrate(t.Context(), cfg); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if _, err := os.Stat(cfg.DataDir); !os.IsNotExist(err) {
		t.Errorf("the data directory was made (%v)", err)
	}
	s := start(t, cfg)
	if err := server.Migrate(t.Context(), cfg); err != nil {
		t.Errorf("beside a running server: %s", fault.From(err).Detail())
	}
	stop(t, s)
}
