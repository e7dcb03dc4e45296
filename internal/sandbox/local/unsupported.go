//go:build !linux

package local

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Driver does not exist on this system: [New] always fails.
type Driver struct{ sandbox.Driver }

// New fails, because local sandboxes need features of Linux.
func New(context.Context, Config) (*Driver, error) { return nil, unsupported() }

// MachineTotal returns no limits.
func MachineTotal() sandbox.Limits { return sandbox.Limits{} }

// Install fails: there is nothing to install.
func Install(context.Context) error { return unsupported() }

// Halt does nothing.
func (*Driver) Halt(context.Context) error { return nil }

// Capabilities returns none.
func (*Driver) Capabilities() Capabilities { return Capabilities{} }

func unsupported() error {
	return fault.New(fault.Precondition, "local sandboxes need Linux", "run the server on Linux, or choose another sandbox driver")
}
