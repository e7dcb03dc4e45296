package sandbox_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// A sandbox whose driver is not Doored reaches the server's doors at its public address.
func TestTheDoorFromInside(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.thread(b.environment(sandbox.Recipe{}))
	server := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		door string
		want fault.Code
	}{
		"one that asks for a credential":          {server(http.StatusUnauthorized), ""},
		"one that does not: it is something else": {server(http.StatusOK), fault.Unavailable},
		"one that does not answer":                {gone.URL, fault.Unavailable},
		"none":                                    {"", fault.Precondition},
	} {
		boxes := sandbox.NewResolver(sandbox.Config{
			DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"cloud": b.cloud}, Door: c.door, Logger: slog.New(slog.DiscardHandler),
		})
		err := boxes.Use(t.Context(), b.scope, thread, "", func(h sandbox.Handle) error {
			if h.Door() != c.door {
				t.Errorf("%s: the door is at %q", name, h.Door())
			}
			return h.CheckDoor(t.Context())
		})
		if got := fault.CodeOf(err); (err != nil || c.want != "") && got != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A driver that limits the hosts of its boxes must know the server, because coding agents in them work through its doors.
func TestADriverIsToldWhereTheServerIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const door = "https://arbe.example.com"
	boxes := sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Door: door, Logger: slog.New(slog.DiscardHandler),
	})
	var told []string
	b.cloud.creating = func(_ context.Context, spec sandbox.Spec) error {
		told = append(told, spec.Door)
		return nil
	}
	env := b.environment(sandbox.Recipe{})
	tryOn(t.Context(), b, boxes, b.thread(env), "", "true")
	diagnosed(t.Context(), t, b, boxes, env)
	if !slices.Equal(told, []string{door, door}) {
		t.Errorf("for a command and for a diagnosis it is told %q", told)
	}
}

// doored is a cloud whose boxes reach the server's doors, and in which every command succeeds.
type doored struct {
	*cloud
	ran []sandbox.Command
}

func (d *doored) Door() string { return "http://arbe.internal" }

func (d *doored) Exec(_ context.Context, _ string, cmd sandbox.Command) (sandbox.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ran = append(d.ran, cmd)
	return sandbox.Result{}, nil
}

// Download finds no file, because the boxes have none.
func (d *doored) Download(context.Context, string, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.NotFound, "there is no such file", "name another")
}

// The door for git has no LFS, whose files would fail the clone.
func TestRepositoriesWithCredentialsAreClonedWithoutLFS(t *testing.T) {
	t.Parallel()
	d := &doored{cloud: newCloud(t)}
	b := setupWith(t, d.cloud, map[string]sandbox.Driver{"cloud": d})
	const repo = "https://git.example.com/a.git"
	for name, c := range map[string]struct {
		git  []sandbox.GitCredential
		want string
	}{
		"with a credential": {[]sandbox.GitCredential{{Host: "git.example.com", Secret: "TOKEN"}}, "1"},
		"without":           {nil, ""},
	} {
		d.ran = nil
		b.sh(b.thread(b.environment(sandbox.Recipe{Repo: repo, Git: c.git, Setup: "true"})), "true")
		clone := slices.IndexFunc(d.ran, func(cmd sandbox.Command) bool { return slices.Contains(cmd.Argv, repo) })
		setup := slices.IndexFunc(d.ran, func(cmd sandbox.Command) bool { return slices.Equal(cmd.Argv, []string{"/bin/sh", "-e", "-c", "true"}) })
		if clone < 0 || setup < 0 {
			t.Fatalf("%s: it runs %v", name, d.ran)
		}
		if got := d.ran[clone].Env["GIT_LFS_SKIP_SMUDGE"]; got != c.want {
			t.Errorf("%s: the clone has %q", name, got)
		}
		if _, set := d.ran[setup].Env["GIT_LFS_SKIP_SMUDGE"]; set {
			t.Errorf("%s: the setup has it too", name)
		}
	}
}
