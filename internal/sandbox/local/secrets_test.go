//go:build linux

package local_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// awaitSecrets waits until the secrets of a box are these files, one per line.
func awaitSecrets(t *testing.T, d *local.Driver, ref, want string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for got := sh(t, d, ref, "ls -A "+sandbox.SecretFolder); got != want; got = sh(t, d, ref, "ls -A "+sandbox.SecretFolder) {
		if time.Now().After(deadline) {
			t.Fatalf("the files of secrets are %q, want %q", got, want)
		}
	}
}

func TestAFileOfASecretOutlivesItsServerOnlyWithItsCommand(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := create(t, d, sandbox.Spec{ID: word("secret-files")})
	launched := []string{"one", "two", "three", "four", "five", "six"} // several, because a stopping server drops them one by one
	for _, id := range launched {
		err := d.Launch(t.Context(), ref, id, sandbox.Command{
			Argv:    []string{"sh", "-c", "until test -e end; do sleep 0.05; done; cat " + sandbox.SecretFolder + "/" + id},
			Secrets: map[string]string{id: "the value of " + id},
		})
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	for range 2 { // twice: a driver that inherited the command must also leave its file to the next one
		closeDriver(t, d)
		d = newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
		if got, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}, Secrets: map[string]string{"other": "another value"}}); err != nil || got.ExitCode != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	sh(t, d, ref, "touch end")
	for _, id := range launched {
		said := ""
		err := d.Follow(t.Context(), ref, id, 0, func(r sandbox.Record) error { said += string(r.Data); return nil })
		if err != nil || said != "the value of "+id {
			t.Errorf("the command %s read %q, %v", id, said, err)
		}
	}
	awaitSecrets(t, d, ref, "")
	halt(t, d)
}

func TestAFileOfASecretIsNeitherInALayerNorOnADisk(t *testing.T) {
	dir := t.TempDir()
	d := newLayered(t, local.Config{Dir: dir})
	const value = "the-value-that-no-disk-has"
	ref := create(t, d, sandbox.Spec{ID: word("layer-secret"), Labels: ofAda})
	if _, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "test -s " + sandbox.SecretFolder + "/key && touch there; sync"}, Secrets: map[string]string{"key": value}}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if err := d.KeepLayer(t.Context(), ref, "key", nil); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	next := create(t, d, sandbox.Spec{ID: word("layer-taker"), Labels: ofAda})
	if _, err := d.TakeLayer(t.Context(), next, "key"); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if got := sh(t, d, next, "ls there; ls -A "+sandbox.SecretFolder); got != "there\n" {
		t.Errorf("the next box has %q", got)
	}
	closeDriver(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if found, _ := exec.CommandContext(ctx, "grep", "-rl", value, filepath.Clean(dir)).Output(); strings.TrimSpace(string(found)) != "" {
		t.Errorf("the value is in %s", found)
	}
}
