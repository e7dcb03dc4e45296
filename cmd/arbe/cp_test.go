package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreCopiedToAndFromASandbox(t *testing.T) {
	t.Parallel()
	server := startUp(t)
	thread := server.arbe(t, "thread", "create", "--name", "copies", "--quiet")
	dir := t.TempDir()
	x := func(line string) string {
		t.Helper()
		return server.arbe(t, "x", "-t", thread, "-c", line)
	}
	files := func(at string) string {
		t.Helper()
		out, err := exec.Command("sh", "-c", `cd "$0" && find . -mindepth 1 -printf '%P %y %m %l\n' | sort`, at).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	here := filepath.Join(dir, "tree")
	big := strings.Repeat("0123456789abcdef", 1<<18)
	for name, content := range map[string]string{"a.txt": "a\n", "sub/big": big, "sub/-x y": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(here, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(here, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../a.txt", filepath.Join(here, "sub/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(here, "a.txt"), 0o755); err != nil {
		t.Fatal(err)
	}

	server.arbe(t, "cp", here, thread+":")
	if got := x(`cat tree/a.txt; wc -c <tree/sub/big; readlink tree/sub/link; stat -c %a tree/a.txt`); got != "a\n4194304\n../a.txt\n755" {
		t.Errorf("the sandbox has %q", got)
	}
	server.arbe(t, "cp", filepath.Join(here, "a.txt"), thread+":b.txt")
	server.arbe(t, "cp", filepath.Join(here, "a.txt"), thread+":tree/sub/")
	if got := x(`cat b.txt tree/sub/a.txt; rm tree/sub/a.txt; ls -A`); got != "a\na\nb.txt\ntree" {
		t.Errorf("the sandbox has %q", got)
	}
	server.arbe(t, "cp", thread+":tree", filepath.Join(dir, "back"))
	if got, want := files(filepath.Join(dir, "back")), files(here); got != want {
		t.Errorf("what comes back is %q, want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "back/sub/big")); err != nil || string(text) != big {
		t.Errorf("the large file is not the same: %d bytes, %v", len(text), err)
	}
	server.arbe(t, "cp", thread+":b.txt", dir)
	if text, err := os.ReadFile(filepath.Join(dir, "b.txt")); err != nil || string(text) != "a\n" {
		t.Errorf("the file is %q, %v", text, err)
	}

	// A sandbox's archive is never written anywhere else, or through a local link.
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "target")
	if err := os.MkdirAll(filepath.Join(target, "evil"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(target, "evil/file")); err != nil {
		t.Fatal(err)
	}
	x(`mkdir evil; echo theirs > evil/file; ln -s /etc/passwd evil/absolute; ln -s ../../x evil/up; mkfifo evil/pipe; ln evil/file evil/hard; chmod 4755 evil/hard`)
	server.arbe(t, "cp", thread+":evil", target)
	if got := files(filepath.Join(target, "evil")); got != "file f 755 \nhard f 755 \n" {
		t.Errorf("the copy has %q", got)
	}
	if text, _ := os.ReadFile(outside); string(text) != "mine" {
		t.Errorf("the file outside has %q", text)
	}
	for name, args := range map[string][]string{
		"two paths here":        {"a", "b"},
		"two in sandboxes":      {thread + ":a", thread + ":b"},
		"what is not there":     {thread + ":nosuchfile", dir},
		"what is not here":      {filepath.Join(dir, "nosuchfile"), thread + ":"},
		"a directory not there": {outside, thread + ":no/such/directory/x"},
	} {
		cmd := server.command(append([]string{"cp"}, args...)...)
		if said, err := cmd.CombinedOutput(); err == nil || len(said) == 0 {
			t.Errorf("%s: %v, %s", name, err, said)
		}
	}
}
