package dbtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestOnlyDirectoriesOfDeadProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	for name, stays := range map[string]bool{
		fmt.Sprintf("arbe-%d-1", dead.Process.Pid):    false,
		fmt.Sprintf("arbe-%d-2", os.Getpid()):         true,
		"arbe-other":                                  true,
		fmt.Sprintf("another-%d-1", dead.Process.Pid): true,
	} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		removeAbandoned(parent)
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: stays is %t, want %t", name, err == nil, stays)
		}
	}
}
