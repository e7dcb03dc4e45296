package remote_test

import (
	"os/exec"
	"testing"
)

func TestTheKeeperIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "../build", "-check", "keeper", "./keeper").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
