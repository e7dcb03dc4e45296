package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines collects the output of a process.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestServePrintsALoginLinkOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, startUp(t), "operators")
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		link bool
		says string
		end  os.Signal
	}{
		{"as it is", nil, false, "arbe is running at http://127.0.0.1:", syscall.SIGTERM},
		{"when it is asked", []string{"--login-link"}, true, "arbe is running at http://127.0.0.1:", os.Interrupt},
		{"as JSON", []string{"--login-link", "--json"}, true, `{"url":"http://127.0.0.1:`, os.Interrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "arbe", append([]string{"serve", "--addr", "0.0.0.0:0", "--drain-timeout", "0s"}, c.args...)...)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+database, "ARBE_DATA_DIR="+filepath.Join(dir, "data"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_STATE_HOME="+dir)
			var out, log lines
			cmd.Stdout, cmd.Stderr = &out, &log
			cmd.Cancel = func() error { return cmd.Process.Kill() }
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(log.String(), "stop it with Ctrl-C") {
				if ctx.Err() != nil {
					t.Fatalf("it does not serve:\n%s", log.String())
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err := cmd.Process.Signal(c.end); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v:\n%s", err, log.String())
			}
			if !strings.HasPrefix(out.String(), c.says) {
				t.Errorf("it says %q, want an address that can be opened", out.String())
			}
			if got := strings.Contains(out.String()+log.String(), "login?token="); got != c.link {
				t.Errorf("it prints a login link: %t, want %t:\n%s", got, c.link, out.String())
			}
		})
	}
}
