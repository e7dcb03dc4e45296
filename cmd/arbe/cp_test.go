package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
	kept := server.arbe(t, "thread", "entries", "list", thread, "--tail", "1", "--jq", ".payload | .output, .truncated, .artifact_id, .raw_bytes > 4e6")
	if kept != "\n\n\ntrue" {
		t.Errorf("the log keeps the copy: %q", kept)
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

// receiving is a copy of a file in a sandbox that has begun, and waits for the rest.
type receiving struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

func receive(t *testing.T, tmp, to string) *receiving {
	t.Helper()
	r := &receiving{cmd: exec.Command("/bin/sh", "-c", receiveFile, "receive", to, "name", "640")}
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), "TMPDIR="+tmp), os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if r.input, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than the pipe holds, so the copy has begun when it is written.
	if _, err := io.WriteString(r.input, strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	return r
}

// end ends the input, and waits for the copy.
func (r *receiving) end(t *testing.T) {
	t.Helper()
	r.input.Close()
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestACopyThatIsKilledLeavesNothingAfterTheNext(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this machine has no /proc")
	}
	tmp, dir := t.TempDir(), filepath.Join(t.TempDir(), "a 'b'\nc")
	for _, at := range []string{"killed", "ended", "slow", "next"} {
		if err := os.MkdirAll(filepath.Join(dir, at), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	has := func(at string) string {
		t.Helper()
		entries, err := os.ReadDir(at)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			name, _, unfinished := strings.Cut(e.Name(), "-cp-")
			if unfinished {
				name = "unfinished"
			}
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	for at, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		r := receive(t, tmp, filepath.Join(dir, at, "file"))
		if err := syscall.Kill(-r.cmd.Process.Pid, signal); err != nil {
			t.Fatal(err)
		}
		_ = r.cmd.Wait() // it was killed
		if want := map[string]string{"killed": "unfinished"}[at]; has(filepath.Join(dir, at)) != want {
			t.Errorf("%s: it leaves %q, want %q", at, has(filepath.Join(dir, at)), want)
		}
	}
	slow := receive(t, tmp, filepath.Join(dir, "slow", "file"))
	receive(t, tmp, filepath.Join(dir, "next")).end(t)
	for at, want := range map[string]string{"killed": "", "ended": "", "slow": "unfinished", "next": "name"} {
		if got := has(filepath.Join(dir, at)); got != want {
			t.Errorf("%s has %q, want %q", at, got, want)
		}
	}
	slow.end(t)
	if got, notes := has(filepath.Join(dir, "slow")), has(filepath.Join(tmp, ".arbe-cp")); got != "file" || notes != "" {
		t.Errorf("the copy that went on has made %q, and %q is noted", got, notes)
	}
	if info, err := os.Stat(filepath.Join(dir, "next", "name")); err != nil || info.Size() != 1<<20 || info.Mode().Perm() != 0o640 {
		t.Errorf("the copy is %v, %v", info, err)
	}
}
