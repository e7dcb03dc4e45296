package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two servers share a database, and each has a machine of its own. Files are copied through the one that does not reach the
// sandbox.
func TestFilesAreCopiedToAndFromASandboxOfAnotherMachine(t *testing.T) {
	t.Parallel()
	first := startUp(t, "ARBE_BLOB_STORE=postgres")
	second := startBeside(t, first, "ARBE_BLOB_STORE=postgres")
	thread := first.arbe(t, "thread", "create", "--quiet")
	first.arbe(t, "x", "-t", thread, "true")
	there, here := second, first
	if found, _ := filepath.Glob(filepath.Join(second.dataDir, "local", "boxes", "*", "box.json")); len(found) > 0 {
		there, here = first, second
	}
	dir := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 1<<18) // more than one piece
	for name, content := range map[string]string{"tree/a.txt": "a\n", "tree/sub/big": big} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there.arbe(t, "cp", filepath.Join(dir, "tree"), thread+":")
	there.arbe(t, "cp", filepath.Join(dir, "tree/a.txt"), thread+":alone")
	if got := here.arbe(t, "x", "-t", thread, "-c", "cat tree/a.txt alone; wc -c <tree/sub/big; md5sum <tree/sub/big"); !strings.HasPrefix(got, "a\na\n4194304\n") {
		t.Errorf("the sandbox has %q", got)
	}
	there.arbe(t, "cp", thread+":tree", filepath.Join(dir, "back"))
	if got := read(t, filepath.Join(dir, "back/sub/big")); got != big {
		t.Errorf("the large file is not the same: %d bytes", len(got))
	}
	there.arbe(t, "cp", thread+":alone", dir)
	if got := read(t, filepath.Join(dir, "alone")); got != "a\n" {
		t.Errorf("the file is %q", got)
	}
	cmd := there.command("cp", thread+":absent", dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "No such file") {
		t.Errorf("a file that is not there: %v %s", err, out)
	}
}
