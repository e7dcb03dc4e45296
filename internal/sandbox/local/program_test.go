//go:build linux

package local_test

import (
	"os/exec"
	"testing"
)

func TestProcess1IsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "../build", "-check", "supervisor/pid1", "./supervisor/pid1").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
