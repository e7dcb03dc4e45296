//go:build linux

package sandboxtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// secretFiles: a command finds the files of its secrets, which only its user can read, and which are gone after it.
func secretFiles(s *suite, t *testing.T) {
	const value = "s3cret-file-91e4\nsecond line"
	b := s.newBox(t, small)
	key := map[string]string{"key.pem": value}
	if !s.guarantees.SecretFiles {
		_, err := s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"true"}, Secrets: key})
		wantCode(t, err, fault.Precondition)
		t.Skip("the driver does not state: commands can receive secrets as files")
	}
	run := func(t *testing.T, script string, files map[string]string) string {
		t.Helper()
		return b.run(t, sandbox.Command{Argv: []string{"sh", "-c", script}, Secrets: files}).stdout
	}
	const list = "ls -A " + sandbox.SecretFolder
	gone := func(t *testing.T) {
		t.Helper()
		deadline := time.Now().Add(patience)
		for got := run(t, list, nil); got != ""; got = run(t, list, nil) {
			if time.Now().After(deadline) {
				t.Fatalf("no command receives secrets, and there are %q", got)
			}
		}
	}
	t.Run("a command reads its file", func(t *testing.T) {
		if got := run(t, "cat "+sandbox.SecretFolder+"/key.pem; stat -c '|%a|%u|' "+sandbox.SecretFolder+"/key.pem | sed \"s/|$(id -u)|/|me|/\"", key); got != value+"|400|me|\n" {
			t.Errorf("it reads %q", got)
		}
		gone(t)
	})
	t.Run("no command can add files", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("a box of an ordinary user has one user")
		}
		if got := run(t, "stat -f -c %T "+sandbox.SecretFolder+"; echo x 2>/dev/null > "+sandbox.SecretFolder+"/mine || echo refused", key); got != "tmpfs\nrefused\n" {
			t.Errorf("the folder is %q", got)
		}
	})
	t.Run("it stays as long as one of its commands runs", func(t *testing.T) {
		done := make(chan string)
		go func() {
			done <- b.run(t, sandbox.Command{
				Argv: []string{"sh", "-c", "touch begun; until test -e end; do sleep 0.05; done; cat " + sandbox.SecretFolder + "/key.pem"}, Secrets: key,
			}).stdout
		}()
		run(t, "until test -e begun; do sleep 0.05; done", map[string]string{"key.pem": value, "other": "another value"})
		if got := run(t, "touch end", nil); got != "" {
			t.Error(got)
		}
		if got := <-done; got != value {
			t.Errorf("it reads %q", got)
		}
		gone(t)
	})
	t.Run("a command that cannot start leaves none", func(t *testing.T) {
		if got := b.run(t, sandbox.Command{Argv: []string{"no-such-program"}, Secrets: key}); got.ExitCode != 127 {
			t.Errorf("%+v", got)
		}
		gone(t)
	})
	t.Run("a name that leads out is refused", func(t *testing.T) {
		for _, name := range []string{"../x", "a/b", "", ".", ".hidden"} {
			_, err := s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"true"}, Secrets: map[string]string{name: value}})
			wantCode(t, err, fault.Invalid)
		}
	})
	t.Run("no other place has it", func(t *testing.T) {
		found := run(t, "grep -rs '[s]3cret-file' /workspace /home/agent /tmp /dev/shm /run/[!s]* /proc/[0-9]*/cmdline /proc/[0-9]*/environ; true", key)
		if strings.TrimSpace(found) != "" {
			t.Errorf("it is in %q", found)
		}
	})
}
