package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The package that delays the garbage collector is initialised before packages allocate much. Most of those import regexp.
func TestTheCollectorIsDelayedBeforePackagesAllocate(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "arbe", "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	traced, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, traced)
	}
	before, after, found := strings.Cut(string(traced), "init github.com/arbe-dev/arbe/cmd/arbe/early/first @")
	if !found || strings.Contains(before, "init regexp @") || !strings.Contains(after, "init regexp @") {
		t.Errorf("packages are initialised in this order:\n%s", traced)
	}
}
