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
)

// upServer is an arbe up of this test's, in a process of its own.
type upServer struct{ dataDir, host, token string }

// startUp starts arbe up on a data directory and a port of its own, and ends it with the test.
func startUp(t *testing.T) upServer {
	t.Helper()
	s := upServer{dataDir: filepath.Join(t.TempDir(), "data")}
	var said strings.Builder
	cmd := exec.Command("arbe", "up")
	cmd.Env = append(os.Environ(), "ARBE_DATA_DIR="+s.dataDir, "ARBE_ADDR=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself, which the next line tells
		if err := <-ended; err != nil {
			t.Errorf("arbe up ended with %v:\n%s", err, said.String())
		}
	})
	for until := time.Now().Add(2 * time.Minute); !s.answers(); {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("arbe up ended before it served: %v\n%s", err, said.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatal("arbe up does not serve")
		}
	}
	return s
}

// answers says whether the server has written where it is and can be reached there.
func (s *upServer) answers() bool {
	text, err := os.ReadFile(filepath.Join(s.dataDir, "cli.json"))
	if err != nil {
		return false
	}
	var login target
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
