//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// files: uploads and downloads are exact and stay inside the box. Otherwise a link that a command made would lead the
// server to files on its own machine.
func files(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	upload := func(path string, mode fs.FileMode, content io.Reader) error {
		return s.driver.Upload(t.Context(), b.ref, path, mode, content)
	}
	download := func(path string) error {
		r, err := s.driver.Download(t.Context(), b.ref, path)
		if err == nil {
			r.Close()
		}
		return err
	}

	t.Run("a file arrives with its content, its mode and the box's user as owner", func(t *testing.T) {
		if err := upload("/workspace/new/deep/tool", 0o751, strings.NewReader("a\x00b")); err != nil {
			t.Fatal(err)
		}
		user := s.guarantees.UserID
		if user < 0 { // the image decides
			user, _ = strconv.Atoi(strings.TrimSpace(b.sh(t, "id -u").stdout))
		}
		want := fmt.Sprintf("751 %d %d\n3\n", user, user)
		if got := b.sh(t, "cd new/deep && stat -c '%a %u %g' tool && wc -c < tool && ls -A | grep -v tool; touch beside"); got.stdout != want || got.ExitCode != 0 {
			t.Errorf("%+v, want %q", got, want)
		}
	})
	t.Run("a relative path is in the working tree", func(t *testing.T) {
		b.put(t, "relative", "x")
		if got := b.get(t, "/workspace/relative"); got != "x" {
			t.Errorf("%q", got)
		}
	})
	t.Run("every place of its own can be reached", func(t *testing.T) {
		for _, dir := range []string{"/home/agent", "/tmp"} {
			b.put(t, dir+"/f", dir)
			if got := b.sh(t, "cat "+dir+"/f"); got.stdout != dir {
				t.Errorf("%s: %q", dir, got.stdout)
			}
		}
	})
	t.Run("a file replaces what was there", func(t *testing.T) {
		b.sh(t, "echo something much longer > replaced; chmod 444 replaced; exec 3< replaced")
		b.put(t, "replaced", "short")
		if got := b.sh(t, "cat replaced; stat -c %a replaced"); got.stdout != "short644\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("a large file goes both ways", func(t *testing.T) {
		data := make([]byte, 16<<20)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(data)
		if err := upload("large", 0o600, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256([]byte(b.get(t, "large"))) != sha256.Sum256(data) {
			t.Error("it came back different")
		}
		b.sh(t, "rm large")
	})
	t.Run("an upload that breaks off leaves nothing", func(t *testing.T) {
		b.sh(t, "mkdir broken; echo old > broken/f")
		broken := io.MultiReader(strings.NewReader("half"), failing{})
		if err := upload("broken/f", 0o644, broken); err == nil {
			t.Error("no error")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancelling := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }), endless{})
		if err := s.driver.Upload(ctx, b.ref, "broken/f", 0o644, cancelling); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if got := b.sh(t, "cat broken/f; ls -A broken"); got.stdout != "old\nf\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("a link inside is followed inside", func(t *testing.T) {
		b.sh(t, "mkdir -p ~/target && ln -sfn /home/agent/target link && echo linked > ~/target/f && ln -sf /home/agent/target/f flink")
		if got := b.get(t, "link/f"); got != "linked" && got != "linked\n" {
			t.Errorf("%q", got)
		}
		if got := b.get(t, "flink"); got != "linked\n" {
			t.Errorf("%q", got)
		}
		b.put(t, "link/g", "x")
		if got := b.sh(t, "cat /home/agent/target/g"); got.stdout != "x" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("an upload replaces a link, not what it leads to", func(t *testing.T) {
		b.sh(t, "echo kept > kept; ln -sf kept replaced-link")
		b.put(t, "replaced-link", "new")
		if got := b.sh(t, "cat kept replaced-link; test -L replaced-link || echo no link"); got.stdout != "kept\nnewno link\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("no link leads out", func(t *testing.T) {
		need(t, s.guarantees.SharedHost, sharedHost)
		outside := t.TempDir()
		secret := filepath.Join(outside, "secret")
		if err := os.WriteFile(secret, []byte(canary), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(outside, 0o777), os.Chmod(secret, 0o666)); err != nil {
			t.Fatal(err)
		}
		b.sh(t, fmt.Sprintf(`ln -sfn %s out; ln -sfn ../../../../../../..%s up; ln -sf %s direct; ln -sfn /proc/1/root root; ln -sfn /proc/self/root self; ln -sfn /proc/self/cwd cwd`,
			outside, outside, secret))
		for _, path := range []string{"out/secret", "up/secret", "direct", "root" + secret, "self" + secret, "cwd/../.." + secret, "../../.." + secret, secret} {
			if r, err := s.driver.Download(t.Context(), b.ref, path); err == nil {
				if content, _ := io.ReadAll(r); string(content) == canary {
					t.Errorf("%s could be downloaded", path)
				}
				r.Close()
			}
			_ = upload(path, 0o644, strings.NewReader("overwritten")) // may succeed, but only inside
		}
		if content, _ := os.ReadFile(secret); string(content) != canary {
			t.Errorf("the host's file is now %q", content)
		}
		if names, _ := os.ReadDir(outside); len(names) != 1 {
			t.Errorf("the host's directory now has %v", names)
		}
	})
	t.Run("what the box's user may not write is refused", func(t *testing.T) {
		for _, path := range []string{"/etc/x", "/usr/bin/x", "/x", "/proc/sys/kernel/hostname", "/proc/1/oom_score_adj", "/etc/passwd"} {
			wantCode(t, upload(path, 0o644, strings.NewReader("x")), fault.Invalid)
		}
	})
	t.Run("what the box's user may not read is refused", func(t *testing.T) {
		for _, path := range []string{"/etc/shadow", "/proc/kcore", "/proc/1/environ", "/proc/1/mem", "/proc/self/environ", "/proc/meminfo"} {
			wantCode(t, download(path), fault.Invalid)
		}
	})
	t.Run("only regular files can be downloaded, and nothing blocks", func(t *testing.T) {
		b.sh(t, "mkfifo fifo; mkdir directory; ln -sf loop loop; perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(\"socket\"))'")
		begin := time.Now()
		for _, path := range []string{"fifo", "directory", "loop", "socket", "missing", "missing/x", "fifo/x", "", "directory/", "/dev/zero", "/dev/tty", "a\x00b"} {
			wantCode(t, download(path), fault.Invalid)
		}
		wantCode(t, upload("directory", 0o644, strings.NewReader("x")), fault.Invalid)
		wantCode(t, upload("relative/x", 0o644, strings.NewReader("x")), fault.Invalid)
		b.put(t, "fifo", "now a file")
		if time.Since(begin) > patience {
			t.Errorf("it took %v", time.Since(begin))
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

// readerFunc makes a function a reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
