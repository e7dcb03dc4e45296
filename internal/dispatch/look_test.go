//go:build linux

package dispatch_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// listed returns what is at a path of a thread's tree.
func (b *bench) listed(thread, name string) (l dispatch.Listing, err error) {
	err = b.dispatcher.ReadPath(b.t.Context(), b.scope, thread, name, 1, func(found dispatch.Listing) error { l = found; return nil }, func([]byte) error { return nil })
	return l, err
}

// sent returns the first most bytes of a file, or all of it.
func (b *bench) sent(thread, name string, most int64) (string, error) {
	var all bytes.Buffer
	err := b.dispatcher.ReadPath(b.t.Context(), b.scope, thread, name, most, func(dispatch.Listing) error { return nil }, func(p []byte) error { all.Write(p); return nil })
	return all.String(), err
}

// looksRefused fails the test unless all looks at the files of a thread are refused with these words, and lead to no sandbox.
func (b *bench) looksRefused(thread, words string) {
	b.t.Helper()
	before, err := b.threads.Get(b.t.Context(), b.scope, thread)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	_, list := b.listed(thread, "")
	_, read := b.sent(thread, "file", 0)
	_, changes := b.dispatcher.TreeChanges(b.t.Context(), b.scope, thread, false)
	for _, err := range []error{list, read, changes} {
		if f := fault.From(err); err == nil || f.Reason() != fault.NoSandbox || !strings.Contains(f.Message, words) || f.Next == "" {
			b.t.Errorf("the error is %q, want %q", detail(err), words)
		}
	}
	if after, err := b.threads.Get(b.t.Context(), b.scope, thread); err != nil || after.Sandbox != before.Sandbox {
		b.t.Errorf("the thread's sandbox is now %q (%v)", after.Sandbox, err)
	}
}

func TestLookingStartsNoSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	b.looksRefused(th, "the thread has no sandbox")
	b.sh(th, "echo content > file")
	if got, err := b.sent(th, "file", 0); got != "content\n" {
		t.Errorf("it reads %q (%s)", got, detail(err))
	}
	on, err := b.threads.Get(t.Context(), b.scope, th)
	if err != nil {
		t.Fatal(detail(err))
	}
	box, err := b.boxes.Sandbox(t.Context(), b.scope, on.Sandbox)
	if err != nil {
		t.Fatal(detail(err))
	}
	if _, err := b.driver.Quarantine(t.Context(), box.Ref); err != nil { // this stops it
		t.Fatal(detail(err))
	}
	b.looksRefused(th, "is stopped")
	b.sh(th, "true")
	if got, err := b.sent(th, "file", 0); got != "content\n" {
		t.Errorf("it reads %q (%s)", got, detail(err))
	}
	if err := b.driver.Destroy(t.Context(), box.Ref); err != nil {
		t.Fatal(detail(err))
	}
	b.looksRefused(th, "no longer exists")
}

// A repository may try to show the server's files in place of its own, to stop the server, or to hide what a name is.
func TestHostileFilesAreLookedAt(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	if made := b.sh(th, fmt.Sprintf(`
		ln -s %[1]s out; ln -s /proc/1/root%[1]s root; ln -s / slash; ln -s loop loop; ln -s dir/in inside; ln -s /dev/zero zero
		mkfifo pipe; mkdir -p dir many; printf '#!/bin/sh\necho planted' | tee ls stat find readlink >/dev/null; chmod +x ls stat find readlink
		echo in dir > dir/in; : > "$(printf 'a\nb')"; : > "$(printf 'bad\377')"; : > "$(printf 'over\342\200\256txt.exe')"; : > ./-rf
		: > "$(printf '8180 1 1 .fake')"; : > '41ed 9 9 .'; mkdir "$(printf 'z\033[31m')"; mkdir -m 000 closed
		(cd many; seq 1 1200 | xargs touch); head -c 300000 /dev/zero | tr '\0' y > long; truncate -s 300M huge; touch -d @9999999999999 future
		rm -f /workspace/none`, secret)); made.ExitCode != 0 {
		t.Fatalf("the files cannot be made: %s", made.Output)
	}
	got, err := b.listed(th, "")
	if err != nil {
		t.Fatal(detail(err))
	}
	var names []string
	for _, f := range got.Files {
		names = append(names, fmt.Sprintf("%s %q", f.Kind, f.Name))
	}
	if want := []string{`folder "closed"`, `folder "dir"`, `folder "many"`, `folder "z\x1b[31m"`, `file "-rf"`, `file "41ed 9 9 ."`, `file "8180 1 1 .fake"`,
		`file "a\nb"`, `file "bad�"`, `file "find"`, `file "future"`, `file "huge"`, `link "inside"`, `file "long"`, `link "loop"`, `file "ls"`, `link "out"`,
		`file "over\u202etxt.exe"`, `special "pipe"`, `file "readlink"`, `link "root"`, `link "slash"`, `file "stat"`, `link "zero"`}; !slices.Equal(names, want) || got.More || got.Path != "." {
		t.Errorf("%q has\n%q, want\n%q", got.Path, names, want)
	}
	if got, err := b.listed(th, "many"); err != nil || len(got.Files) != 1000 || !got.More {
		t.Errorf("%d files of a large folder are listed, more is %v (%s)", len(got.Files), got.More, detail(err))
	}
	if got, err := b.listed(th, "inside"); err != nil || got.Path != "dir/in" || got.Kind != dispatch.RegularFile || got.Size != 7 {
		t.Errorf("a link to a file is %+v (%s)", got, detail(err))
	}
	if got, err := b.sent(th, "a\nb", 0); err != nil || got != "" {
		t.Errorf("it reads %q (%s)", got, detail(err))
	}
	if got, err := b.sent(th, "long", 1000); err != nil || got != strings.Repeat("y", 1000) {
		t.Errorf("it reads %d bytes (%s)", len(got), detail(err))
	}
	began := time.Now()
	for name, words := range map[string]string{
		"out": "no file", "root": "", "slash": "out of the working tree", "slash/etc/passwd": "out of the working tree", "/etc/passwd": "out of the working tree",
		"../etc/passwd": "out of the working tree", "loop": "no file", "nothing": "no file", "zero": "out of the working tree", "\x00": "NUL", "/workspace2": "out of the working tree",
	} {
		_, list := b.listed(th, name)
		_, read := b.sent(th, name, 10)
		for _, err := range []error{list, read} {
			if err == nil || !strings.Contains(fault.From(err).Message, words) {
				t.Errorf("%q: %s, want %q", name, detail(err), words)
			}
		}
	}
	for name, kind := range map[string]dispatch.FileKind{"pipe": dispatch.SpecialFile, "dir": dispatch.Folder} {
		l, failed := b.listed(th, name)
		if got, err := b.sent(th, name, 0); got != "" || err != nil || failed != nil || l.Kind != kind {
			t.Errorf("%s is a %s with %d bytes (%s)", name, l.Kind, len(got), detail(err))
		}
	}
	if got, err := b.sent(th, "huge", 0); got != "" || err == nil || !strings.Contains(fault.From(err).Message, "larger than 256 MiB") {
		t.Errorf("of a huge file: %d bytes and %s", len(got), detail(err))
	}
	if _, err := b.listed(th, "closed"); err == nil || !strings.Contains(fault.From(err).Message, "cannot be read") {
		t.Errorf("a closed folder: %s", detail(err))
	}
	left := errors.New("the reader left")
	if err := b.dispatcher.ReadPath(t.Context(), b.scope, th, "long", 0, func(dispatch.Listing) error { return nil }, func([]byte) error { return left }); !errors.Is(err, left) {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if _, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, false); fault.CodeOf(err) != fault.Precondition || !strings.Contains(fault.From(err).Message, "not a git repository") {
		t.Errorf("without a repository: %s", detail(err))
	}
}

func TestTheChangesInATree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	if out, err := exec.Command("sh", "-c", `git init --quiet "$1" && cd "$1" && printf 'one\ntwo\n' > file && git add . &&
		git -c user.name=Ada -c user.email=a@b commit --quiet -m first`, "sh", repo).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	b := setup(t, root)
	th := b.thread(sandbox.Recipe{Repositories: []sandbox.Repository{{URL: repo, Folder: "app"}, {URL: repo, Folder: "lib"}}})
	b.sh(th, "true")
	if got, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, false); err != nil || len(got.Patch) > 0 || got.More {
		t.Errorf("an unchanged tree has the changes %q (%s)", got.Patch, detail(err))
	}
	b.sh(th, `cd app; echo three >> file; git -c user.name=A -c user.email=a@b commit --quiet -am 'committed'; echo four >> file
		echo new > untracked; printf '\0\1\2' > binary; mkfifo pipe; ln -s /etc/passwd link; head -c 20000000 /dev/zero > large
		echo ignored > .gitignore; echo x > ignored; echo '* diff=evil' > .gitattributes
		git config core.fsmonitor 'touch /tmp/ran; false'; git config diff.external 'touch /tmp/ran; false'; git config diff.evil.textconv 'touch /tmp/ran; cat'
		rm ../lib/file`)
	got, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, false)
	if err != nil {
		t.Fatal(detail(err))
	}
	for _, want := range []string{"--- a/app/file\n+++ b/app/file\n", "+three\n+four\n", "+++ b/app/untracked\n", "Binary files /dev/null and b/app/binary differ\n",
		"b/app/link", "+/etc/passwd\n", "+++ b/app/.gitignore", "--- a/lib/file\n+++ /dev/null\n"} {
		if !strings.Contains(string(got.Patch), want) {
			t.Errorf("the patch lacks %q:\n%s", want, got.Patch)
		}
	}
	if strings.Contains(string(got.Patch), "app/ignored") || got.More || got.LeftOut != 1 {
		t.Errorf("%d files are left out, more is %v:\n%s", got.LeftOut, got.More, got.Patch)
	}
	last, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, true)
	if text := string(last.Patch); err != nil || strings.Contains(text, "+three") || !strings.Contains(text, "+four\n") || !strings.Contains(text, "--- a/lib/file\n+++ /dev/null\n") {
		t.Errorf("what is not committed is (%s)\n%s", detail(err), text)
	}
	if ran := b.sh(th, "ls /tmp/ran; ls -A $HOME | grep arbe-tree; git -C app status --short | wc -l"); !strings.HasSuffix(ran.Output, "\n7\n") || strings.Contains(ran.Output, "arbe-tree") || strings.Contains(ran.Output, "/tmp/ran\n") {
		t.Errorf("afterwards there is %q", ran.Output)
	}
	b.sh(th, "yes 'a line of some length' | head -c 5000000 > app/untracked")
	if got, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, false); err != nil || !got.More || len(got.Patch) < 3<<20 || got.Patch[len(got.Patch)-1] != '\n' {
		t.Errorf("of long changes there are %d bytes, more is %v (%s)", len(got.Patch), got.More, detail(err))
	}
}

func TestFilesAreShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.withSecrets()
	b.driver = realBoxes(t)
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{Secrets: commandtest.Bound, Setup: `git init --quiet; git -c user.name=A -c user.email=a@b commit --quiet --allow-empty -m first
		printf %s "$CANARY" > key; (head -c 65530 /dev/zero | tr '\0' y; cat key; echo after) > long`})
	b.sh(th, "true")
	for _, name := range []string{"key", "long"} {
		for _, most := range []int64{0, 10, 65540} {
			got, err := b.sent(th, name, most)
			if err != nil || most > 0 && int64(len(got)) > most || most == 0 && name == "long" && !strings.HasSuffix(got, "xafter\n") {
				t.Errorf("%s: %d bytes, %q at the end (%s)", name, len(got), got[max(0, len(got)-50):], detail(err))
			}
			if strings.Contains(got, commandtest.Canary[:8]) {
				t.Errorf("the first %d bytes of %s show a secret: %q", most, name, got[max(0, len(got)-50):])
			}
		}
	}
	got, err := b.dispatcher.TreeChanges(t.Context(), b.scope, th, false)
	if err != nil || !strings.Contains(string(got.Patch), "+xxxxx") {
		t.Errorf("the changes are %.200q (%s)", got.Patch, detail(err))
	}
	commandtest.CheckNoCanary(t, "the changes", string(got.Patch))
}
