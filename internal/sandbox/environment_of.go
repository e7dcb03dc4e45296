package sandbox

import (
	"context"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// EnvironmentOf returns the environment of a sandbox of a house, for what the sandbox may do. If the sandbox is gone, the error is
// a [fault.Forbidden].
func (r *Resolver) EnvironmentOf(ctx context.Context, house, id string) (string, error) {
	box, err := r.Sandboxes.Sandbox(ctx, db.Scope{House: house}, id)
	if fault.CodeOf(err) == fault.NotFound || err == nil && box.Status == StatusDead {
		return "", fault.New(fault.Forbidden, "the sandbox is gone", "run a command in the thread, which gets a new one")
	}
	return box.Environment, err
}
