//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/secret"
)

func TestADiagnosisInARealSandbox(t *testing.T) {
	t.Parallel()
	d := newLocal(t, func(c *local.Config) {
		c.Door = func(conn net.Conn, _ sandbox.Labels) {
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			}
		}
	})
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	repository(t, repo)
	b := setupWith(t, newCloud(t), map[string]sandbox.Driver{"local": d}, root)
	secrets := secret.New(b.DB, b.Sealer, nil, nil)
	if _, _, err := secrets.Set(t.Context(), b.scope, "TOKEN", []byte("sesame-and-more")); err != nil {
		t.Fatal(err)
	}
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"local": d}, RepoRoots: []string{root}, Secrets: secrets, Logger: slog.New(slog.DiscardHandler),
	})
	left := func(t *testing.T) {
		t.Helper()
		boxes, err := d.List(t.Context(), sandbox.Labels{})
		if err != nil || len(boxes) > 0 || b.rows() > 0 {
			t.Errorf("%d boxes and %d records are left (%v)", len(boxes), b.rows(), err)
		}
	}
	recipe := sandbox.Recipe{
		Driver: "local", Repo: repo, Setup: "echo $TOKEN; test -d .git", Start: "echo started",
		Secrets: []secret.Binding{{Name: "TOKEN", Required: true}, {Name: "EXTRA"}}, Egress: egress.Policy{Mode: egress.None},
	}
	t.Run("says of each step how it went, and leaves nothing", func(t *testing.T) {
		by, order := diagnosed(t.Context(), t, b, b.boxes, b.environment(recipe))
		want := "recipe ok,driver ok,secrets warning,image skipped,create ok,git skipped,clone ok,defaults skipped,setup ok,cache ok,start ok,egress ok,door ok,remove ok"
		if got := strings.Join(order, ","); got != want {
			t.Errorf("the steps are\n%s\nwant\n%s\n%+v", got, want, by)
		}
		if by["create"].Duration <= 0 || by["start"].Output != "started" {
			t.Errorf("it says %+v", by)
		}
		if setup := by["setup"]; strings.Contains(fmt.Sprint(setup), "sesame") {
			t.Errorf("the setup shows a secret: %+v", setup)
		}
		left(t)
	})
	t.Run("stops at the step that fails, says what to do, and leaves nothing", func(t *testing.T) {
		recipe := recipe
		recipe.Setup = "echo no such package >&2; exit 3"
		by, order := diagnosed(t.Context(), t, b, b.boxes, b.environment(recipe))
		if got := strings.Join(order[7:], ","); got != "defaults skipped,setup failed,cache skipped,start skipped,egress skipped,door skipped,remove ok" {
			t.Errorf("the steps are %s", got)
		}
		if setup := by["setup"]; setup.Output != "no such package" || setup.Next == "" || !strings.Contains(setup.Message, "exit code 3") {
			t.Errorf("the setup says %+v", setup)
		}
		left(t)
	})
	t.Run("names a secret that is missing before anything is built", func(t *testing.T) {
		recipe := recipe
		recipe.Secrets = []secret.Binding{{Name: "ABSENT", Required: true}}
		by, _ := diagnosed(t.Context(), t, b, b.boxes, b.environment(recipe))
		if c := by["secrets"]; c.Result != sandbox.CheckFailed || !strings.Contains(c.Message, "ABSENT") || !strings.Contains(c.Next, "arbe secret set ABSENT") {
			t.Errorf("the secrets say %+v", c)
		}
		if c := by["create"]; c.Result != sandbox.CheckSkipped {
			t.Errorf("the creation says %+v", c)
		}
		left(t)
	})
	t.Run("is cut off by whoever asked, and leaves nothing", func(t *testing.T) {
		recipe := recipe
		recipe.Setup = "sleep 1000"
		ctx, cancel := context.WithCancel(t.Context())
		err := b.boxes.Diagnose(ctx, b.scope, b.environment(recipe), false, func(c sandbox.Check) error {
			if c.Name == "clone" {
				cancel()
			}
			return nil
		})
		if err == nil {
			t.Error("it says that all steps were done")
		}
		left(t)
	})
}

func TestADiagnosisOfAProviderThatHasNoRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cloud.creating = func(context.Context, sandbox.Spec) error {
		return fault.New(fault.Exhausted, "no machine left", "delete one")
	}
	by, order := diagnosed(t.Context(), t, b, b.boxes, b.environment(sandbox.Recipe{}))
	if c := by["create"]; c.Result != sandbox.CheckFailed || c.Message != "no machine left" || c.Next != "delete one" {
		t.Errorf("the creation says %+v", c)
	}
	if last := order[len(order)-1]; last != "remove ok" || b.rows() != 0 {
		t.Errorf("it ends with %q and leaves %d records", last, b.rows())
	}
}
