//go:build linux

// Package sandboxtest is the suite that every sandbox driver must pass. It checks on live boxes, through
// [sandbox.Driver] only, what a box must allow and what it must prevent.
//
// Each file is a category. Categories create their own boxes and run in parallel. The checks of a category run one
// after another in one box, so that each also shows that the previous ones left it usable. Most checks are a line of
// shell with its exact output.
//
// A driver states its guarantees ([sandbox.Stating]), and the suite checks them. Checks of other properties are
// reported as skipped, not as passed.
package sandboxtest

import (
	"context"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Run runs the suite. It calls newDriver once, and closes the driver at the end. sharedHost is [Guarantees].SharedHost.
func Run(t *testing.T, sharedHost bool, newDriver func(t *testing.T) sandbox.Driver) {
	t.Setenv("ARBE_SUITE_CANARY", canary) // before the driver starts: it or its children might pass it on
	s := &suite{driver: newDriver(t), guarantees: Guarantees{SharedHost: sharedHost}}
	if stating, ok := s.driver.(sandbox.Stating); ok {
		s.guarantees.Guarantees = stating.Guarantees()
	}
	t.Cleanup(func() {
		if err := s.driver.Close(context.Background()); err != nil {
			t.Errorf("close the driver: %s", fault.From(err).Detail())
		}
	})
	t.Run("categories", func(t *testing.T) { // the cleanup must wait for the parallel categories
		for name, category := range map[string]func(*suite, *testing.T){
			"the host cannot be read":           hostReads,
			"only three places can be written":  writesOutside,
			"processes are its own":             processes,
			"there is no privilege to be had":   privileges,
			"dangerous system calls are denied": kernelSurface,
			"limits hold and heal":              limits,
			"output is exact":                   output,
			"input is exact":                    input,
			"nothing outlives its end":          lifecycle,
			"exit codes are the shell's":        exitCodes,
			"a command's words are its own":     ownWords,
			"commands run as they were given":   invocation,
			"the environment is as given":       environment,
			"the network is its own":            network,
			"programs are reached at ports":     ports,
			"files go in and out safely":        files,
			"boxes are made, found and deleted": boxes,
			"boxes are strangers to each other": neighbours,
			"leftovers harm nobody":             leftovers,
			"secrets are each command's own":    secrets,
			"secrets are files for a while":     secretFiles,

			"leftovers harm no launched command":      launched(leftovers),
			"secrets are each launched command's own": launched(secrets),
			"secrets are files for a launched one":    launched(secretFiles),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				category(s, t)
			})
		}
	})
}

// launched runs a category with launched commands, as servers run them.
func launched(category func(*suite, *testing.T)) func(*suite, *testing.T) {
	return func(s *suite, t *testing.T) {
		l, ok := s.driver.(sandbox.Launcher)
		need(t, ok && l.Launches(), "commands outlive their server")
		category(&suite{s.driver, s.guarantees, l}, t)
	}
}
