//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Install makes the default runtime available. It does nothing if runc is installed. If the server is root on a system
// with apt, it installs the system's package. Otherwise the error says what to do.
func Install(ctx context.Context) error {
	_, err := findRuntime("")
	if err == nil {
		return nil
	}
	apt, noApt := exec.LookPath("apt-get")
	if noApt != nil || !asRoot() {
		return err
	}
	install := func() ([]byte, error) {
		cmd := exec.CommandContext(ctx, apt, "install", "--yes", "--no-install-recommends", "runc")
		cmd.Env = []string{"PATH=" + hostPath, "DEBIAN_FRONTEND=noninteractive"}
		return cmd.CombinedOutput()
	}
	out, err := install()
	if err != nil { // a new machine has no package lists yet
		update := exec.CommandContext(ctx, apt, "update")
		update.Env = []string{"PATH=" + hostPath}
		_ = update.Run() // the second attempt shows what is wrong
		out, err = install()
	}
	if err != nil {
		return fault.New(fault.Precondition, "the OCI runtime runc could not be installed",
			"install it yourself (apt-get install runc), or name another with the setting sandbox_runtime").
			Because(fmt.Errorf("apt-get: %w: %s", err, bytes.TrimSpace(out)))
	}
	return nil
}
