//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var (
	lasting = flag.Duration("chaos.for", 0, "run scenarios in random order for so long, after the tests")
	chance  = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "what chance begins with")
)

// scratch is the directory of files that all tests share.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	unmountLeftovers()
	var err error
	if scratch, err = os.MkdirTemp("", "arbe-chaos-scratch-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // Postgres may run as another user, who must be able to enter
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// program is an arbe built for this run: with the race detector if this test has it, unless it must be lean.
func program(t testing.TB, lean bool) string {
	t.Helper()
	build := buildLean
	if raceEnabled && !lean {
		build = buildRacing
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	buildLean   = sync.OnceValues(func() (string, error) { return build("lean") })
	buildRacing = sync.OnceValues(func() (string, error) { return build("racing", "-race") })
)

func build(name string, flags ...string) (path string, err error) {
	path = filepath.Join(scratch, name)
	args := append(append([]string{"build", "-o", path}, flags...), "github.com/arbe-dev/arbe/cmd/arbe")
	if said, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building arbe: %w\n%s", err, said)
	}
	return path, nil
}
