package sandbox

import (
	"context"

	"github.com/arbe-dev/arbe/db"
)

// Elsewhere reaches sandboxes of other machines through their servers.
type Elsewhere interface {
	// Driver returns a driver for one sandbox. It has Exec without an input, Download, Asleep and Dial.
	Driver(scope db.Scope, box Sandbox) Driver
	// Wake is [Resolver.Wake] on the machine of a sandbox.
	Wake(ctx context.Context, scope db.Scope, box Sandbox, threadID string) (Woken, error)
}

// Woken is a sandbox that [Resolver.Wake] has made ready.
type Woken struct {
	Sandbox string
	// Started means that it was not running before, so only what its environment starts runs in it.
	Started bool
}
