//go:build linux

package local_test

import (
	"os/exec"
	"testing"
)

func TestProcess1IsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./supervisor/build", "-check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
