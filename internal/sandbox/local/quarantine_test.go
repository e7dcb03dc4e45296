//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

func TestAQuarantinedBox(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	id := word("quarantined")
	ref := create(t, d, sandbox.Spec{ID: id})
	sh(t, d, ref, "echo work > f; "+named(id)+" &")

	var kept string
	quarantine := func(t *testing.T) {
		t.Helper()
		for range 2 { // repeating it has no effect
			var err error
			if kept, err = d.Quarantine(t.Context(), ref); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
		}
		if _, err := os.Stat(filepath.Join(kept, "box.json")); err != nil || kept != filepath.Join(dir, "quarantine", id) {
			t.Errorf("its files are kept in %s: %v", kept, err)
		}
	}
	isListed := func(t *testing.T, quarantined bool) {
		t.Helper()
		boxes, err := d.List(t.Context(), sandbox.Labels{})
		if err != nil || len(boxes) != 1 || boxes[0].Ref != ref || boxes[0].Quarantined != quarantined {
			t.Errorf("listed: %+v, %v", boxes, err)
		}
		if live, err := d.Probe(t.Context(), ref); live != sandbox.Live || err != nil {
			t.Errorf("probe: %s, %v", live, err)
		}
	}
	t.Run("is stopped and listed, also by the next server", func(t *testing.T) {
		quarantine(t)
		if left := traces(t, id); left != "" {
			t.Errorf("this still runs:\n%s", left)
		}
		isListed(t, true)
		closeDriver(t, d)
		d = newDriver(t, local.Config{Dir: dir})
		isListed(t, true)
	})
	t.Run("returns with its files at its next use", func(t *testing.T) {
		if got := sh(t, d, ref, "cat f"); got != "work\n" {
			t.Errorf("its file is %q", got)
		}
		isListed(t, false)
	})
	t.Run("is deleted by a destroy", func(t *testing.T) {
		quarantine(t)
		if err := d.Destroy(t.Context(), ref); err != nil {
			t.Error(fault.From(err).Detail())
		}
		if _, err := os.Stat(kept); !os.IsNotExist(err) {
			t.Errorf("its directory: %v", err)
		}
	})
	t.Run("is gone when the operator has deleted its files", func(t *testing.T) {
		ref = create(t, d, sandbox.Spec{ID: id})
		quarantine(t)
		if err := os.RemoveAll(kept); err != nil {
			t.Fatal(err)
		}
		if live, err := d.Probe(t.Context(), ref); live != sandbox.Gone || err != nil {
			t.Errorf("probe: %s, %v", live, err)
		}
		if _, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("a command in it: %v", err)
		}
	})
	closeDriver(t, d)
}

func TestADirectoryWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	closeDriver(t, newDriver(t, local.Config{Dir: dir}))
	for file, content := range map[string]string{
		"lost/disk.ext4": "somebody's work", "half/disk.ext4": "nothing yet", "half/unfinished": "",
	} {
		path := filepath.Join(dir, "boxes", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		closeDriver(t, newDriver(t, local.Config{Dir: dir}))
		if left, _ := filepath.Glob(filepath.Join(dir, "boxes", "*")); len(left) != 0 {
			t.Errorf("a start leaves %v", left)
		}
		kept, _ := filepath.Glob(filepath.Join(dir, "quarantine", "*", "disk.ext4"))
		if len(kept) != 1 {
			t.Fatalf("in quarantine there is %v, want what has lost its record alone", kept)
		}
		if text, err := os.ReadFile(kept[0]); err != nil || string(text) != "somebody's work" {
			t.Errorf("its content is %q, %v", text, err)
		}
	}
}
