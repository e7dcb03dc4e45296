package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/httpd/httpdtest"
)

// upServer is an arbe up in its own process, with its own data directory and port.
type upServer struct {
	// verb is up, or serve for a server on the database of another one.
	verb          string
	dataDir, addr string
	// settings holds more variables of its environment.
	settings []string
	// host and token come from its cli.json.
	host, token string

	said  *strings.Builder
	cmd   *exec.Cmd
	ended chan error
}

// startUp starts arbe up and stops it with the test. Its database has been migrated before; see [startFirst].
func startUp(t testing.TB, settings ...string) *upServer {
	t.Helper()
	s := newServer(t, "up", "127.0.0.1", settings)
	dbtest.Copy(t, filepath.Join(s.dataDir, "postgres"))
	s.start(t)
	return s
}

// startFirst starts arbe up in an empty directory, as a newcomer does, at a separate address, as on another machine.
func startFirst(t testing.TB, ip string) *upServer {
	t.Helper()
	s := newServer(t, "up", ip, nil)
	s.start(t)
	return s
}

// startBeside starts arbe serve on the database of a server, as on another machine.
func startBeside(t testing.TB, of *upServer, settings ...string) *upServer {
	t.Helper()
	kept := func(name string) string {
		text, err := os.ReadFile(filepath.Join(of.dataDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	s := newServer(t, "serve", "127.0.0.1", append(settings, "DATABASE_URL="+kept("database_url"), "ARBE_SECRET_KEY="+kept("secret.key")))
	s.start(t)
	return s
}

// newServer returns a server that has not started, and stops it with the test.
func newServer(t testing.TB, verb, ip string, settings []string) *upServer {
	t.Helper()
	s := &upServer{verb: verb, dataDir: filepath.Join(t.TempDir(), "data"), addr: httpdtest.Address(t, ip), settings: settings}
	t.Cleanup(func() {
		if s.cmd == nil {
			return
		}
		_ = s.cmd.Process.Signal(os.Interrupt) // the server may have ended already; the next line reports that
		if err := <-s.ended; err != nil {
			t.Errorf("arbe %s ended with %v:\n%s", verb, err, s.said)
		}
	})
	return s
}

// state returns the directory for its pointer.
func (s *upServer) state() string { return filepath.Join(filepath.Dir(s.dataDir), "state") }

// start starts the server, and returns once it serves.
func (s *upServer) start(t testing.TB) {
	t.Helper()
	s.said = &strings.Builder{}
	cmd := exec.Command("arbe", s.verb)
	cmd.Env = append(os.Environ(), "ARBE_DATA_DIR="+s.dataDir, "ARBE_ADDR="+s.addr, "XDG_STATE_HOME="+s.state(),
		"ARBE_SANDBOX_MAX_DISK_MB=512") // sandboxes reserve their disks
	cmd.Env = append(cmd.Env, s.settings...)
	cmd.Stdout, cmd.Stderr = s.said, s.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd, s.ended = cmd, make(chan error, 1)
	go func() { s.ended <- cmd.Wait() }()
	for until := time.Now().Add(5 * time.Minute); !s.answers(); {
		select {
		case err := <-s.ended:
			s.cmd = nil
			t.Fatalf("arbe %s ended before it served: %v\n%s", s.verb, err, s.said)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatalf("arbe %s does not serve", s.verb)
		}
	}
}

// kill sends the server SIGKILL, and returns once it is gone.
func (s *upServer) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	s.cmd = nil
}

// answers reports whether the server has written its address and can be reached there.
func (s *upServer) answers() bool {
	text, err := os.ReadFile(filepath.Join(s.dataDir, "cli.json"))
	if err != nil {
		return false
	}
	var login localServer
	if json.Unmarshal(text, &login) != nil {
		return false
	}
	s.host, s.token = login.Host, login.Token
	res, err := http.Get(s.host)
	if err != nil {
		return false
	}
	res.Body.Close()
	return true
}
