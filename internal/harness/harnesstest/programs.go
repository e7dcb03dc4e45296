package harnesstest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness"
)

// Program returns the directory with the program of a harness, as its Install makes it. The test fails if make has not
// installed it.
func Program(t testing.TB, h harness.Harness) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(here), "programs", h.Info().Name)
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		t.Fatalf("the program of %s is not installed: make agents", h.Info().Title)
	}
	return dir
}
