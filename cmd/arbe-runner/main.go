// The program arbe-runner runs one coding agent inside a sandbox; see package runner. It is embedded in arbe, which uploads
// it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/runner"
)

func main() {
	// A box that stops ends its processes with SIGTERM. arbe then finds that the run is lost, and the run can be continued.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runner.Main(ctx, os.Args[1:], os.Environ(), all.Named)
	stop()
	os.Exit(code)
}
