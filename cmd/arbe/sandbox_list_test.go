//go:build linux

package main

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

func TestSandboxesOfAProviderAreListedAndReconciled(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	server := startUp(t, "SPRITES_TOKEN="+spritetest.Token, "ARBE_SPRITE_API_URL="+account.URL)
	server.arbe(t, "env", "create", "rented", "--driver", "sprite", "--egress", "open", "--quiet")
	thread := server.arbe(t, "thread", "create", "--env", "rented", "--quiet")
	server.arbe(t, "x", "-t", thread, "true")

	list := func(args ...string) (out, said string) {
		t.Helper()
		cmd := server.command(append([]string{"sandbox", "list"}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("sandbox list %q: %v: %s", args, err, stderr.String())
		}
		return string(text), stderr.String()
	}
	id, _ := list("--driver", "sprite", "--quiet")
	id = strings.TrimSpace(id)
	if id == "" || strings.Contains(id, "\n") {
		t.Fatalf("the house has the Sprites %q", id)
	}
	// Sprites does not tell what a sandbox used, so nobody knows what it cost.
	ran := regexp.MustCompile(`(under 1 s|\d+ (s|min)) +unknown `)
	if out, said := list("--driver", "sprite"); !ran.MatchString(out) || !strings.Contains(said, "that cost an unknown amount for ") {
		t.Errorf("of the time that it ran, the list says %q%q", out, said)
	}
	if out := server.arbe(t, "sandbox", "show", id, "--json"); !regexp.MustCompile(`"running_ms":[1-9]\d*,"unpriced_ms":[1-9]\d*,"cost_micros":0[,}]`).MatchString(out) {
		t.Errorf("of the time that it ran, it says %s", out)
	}
	if out, _ := list("--driver", "local"); strings.Contains(out, id) {
		t.Errorf("the sandboxes of this machine are %q", out)
	}
	if out, said := list("--reconcile"); !strings.Contains(out, id) || strings.Contains(said, "is gone") {
		t.Errorf("of a sandbox that exists it says %q%q", out, said)
	}

	boxes := slices.Collect(maps.Keys(account.Boxes()))
	owner, err := sprite.Open(sprite.Config{Token: spritetest.Token, URL: account.URL})
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the organization has %q (%v)", boxes, err)
	}
	// Without a list of all boxes, no sweep of the server can notice the destruction before the command does.
	defer account.Fail(spritetest.Fault{On: regexp.MustCompile(`^GET /v1/sprites\?(.*&)?prefix=[^&]*-(&|$)`), Status: http.StatusServiceUnavailable})()
	if err := owner.Destroy(t.Context(), boxes[0]); err != nil { // behind the server's back
		t.Fatal(err)
	}
	if out, _ := list(); !strings.Contains(out, id) {
		t.Errorf("before anybody asks the provider, the list is %q", out)
	}
	if out, said := list("--reconcile"); strings.Contains(out, id) || !strings.Contains(said, "sandbox "+id+" is gone; its threads get another one with their next command") {
		t.Errorf("of a sandbox that is gone it says %q%q", out, said)
	}
	if out, _ := list("--all"); !strings.Contains(out, id) || !strings.Contains(out, "dead") {
		t.Errorf("all sandboxes are %q", out)
	}
}
