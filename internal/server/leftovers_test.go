package server_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

// unprivileged returns the URL of a new database as a role that may not create the server's role.
func unprivileged(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(dbtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	role := "plain_" + strings.TrimPrefix(u.Path, "/")
	if _, err := admin.Exec(t.Context(), "create role "+pgx.Identifier{role}.Sanitize()+" login password 'plain'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer admin.Close(context.Background())
		name := pgx.Identifier{role}.Sanitize()
		if _, err := admin.Exec(context.Background(), "drop owned by "+name+"; drop role "+name); err != nil {
			t.Error(err)
		}
	})
	u.User = url.UserPassword(role, "plain")
	return u.String()
}

func TestAStartThatIsRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for name, c := range map[string]struct {
		database, addr string
	}{
		"by a database that is not there":       {"postgres://nobody@127.0.0.1:1/none", "127.0.0.1:0"},
		"by a database that it may not migrate": {unprivileged(t), "127.0.0.1:0"},
		"by a port that is in use":              {"", taken.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, parent := settings(t), t.TempDir()
			cfg.DataDir = filepath.Join(parent, "new", "data")
			cfg.DatabaseURL, cfg.Addr = c.database, c.addr
			s, err := server.Start(t.Context(), cfg)
			if err == nil {
				s.Stop()
				t.Fatal("it started")
			}
			if left, _ := os.ReadDir(parent); len(left) > 0 {
				inside, _ := os.ReadDir(cfg.DataDir)
				t.Errorf("it left %v with %v; it said: %s", left, inside, fault.From(err).Detail())
			}
		})
	}
	t.Run("but what was there before stays", func(t *testing.T) {
		t.Parallel()
		cfg := settings(t)
		cfg.DatabaseURL = "postgres://nobody@127.0.0.1:1/none"
		if err := os.Mkdir(cfg.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Start(t.Context(), cfg); err == nil {
			t.Fatal("it started")
		}
		if _, err := os.Stat(cfg.DataDir); err != nil {
			t.Errorf("the directory is gone: %v", err)
		}
	})
}

// A refused start removes the lock. Starts that wait for it must not each get their own lock.
func TestOneServerAtATimeUsesADirectoryThatComesAndGoes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data")
	holders := make(chan struct{}, 1)
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 100 {
				release, err := server.LockDirectory(path)
				if err != nil {
					continue // others held the lock during the whole wait
				}
				select {
				case holders <- struct{}{}:
					time.Sleep(time.Millisecond) // long enough to notice a second holder
					<-holders
				default:
					t.Error("two have the directory")
				}
				release()
			}
		}()
	}
	for range 4 {
		<-done
	}
}
