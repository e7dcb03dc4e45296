package sandbox

import "context"

// attend prepares a sandbox for a use that is about to begin. Only a box that is gone is an error.
func (r *Resolver) attend(ctx context.Context, p Handle) error {
	return r.git.refresh(ctx, p)
}
