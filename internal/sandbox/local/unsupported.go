//go:build !linux

package local

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Driver does not exist on this system: [New] always fails.
type Driver struct{ sandbox.Driver }

// New fails: local sandboxes are made of what Linux has.
func New(context.Context, Config) (*Driver, error) { return nil, unsupported() }

// Install fails: there is nothing to install.
func Install(context.Context) error { return unsupported() }

// Capabilities are none.
func (*Driver) Capabilities() Capabilities { return Capabilities{} }

func unsupported() error {
	return fault.New(fault.Precondition, "local sandboxes need Linux", "run the server on Linux, or choose another sandbox driver")
}
