package remote

import (
	"context"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// validID matches a sandbox's id.
var validID = lazyregexp.New(`^[a-z0-9-]{1,40}$`)

// Create creates a box and puts the keeper into it. Of the callers that create the same box, one at a time does so: a provider
// that prepares a box twice may replace a program that already runs in it, and a creation that fails deletes its box.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	if !validID.MatchString(spec.ID) {
		return "", fault.Newf(fault.Invalid, "use a-z, 0-9 and -, at most 40 characters", "%q is not a sandbox's id", spec.ID)
	}
	end, err := d.beginCreation(ctx, boxKey{spec.Labels.Installation, spec.ID})
	if err != nil {
		return "", err
	}
	defer end()
	ref, err := d.provider.Create(ctx, spec)
	if err != nil {
		return "", err
	}
	if err := d.prepare(ctx, ref); err != nil {
		_ = d.Destroy(context.WithoutCancel(ctx), ref) // the caller gets the first error
		return "", err
	}
	return ref, nil
}

// beginCreation waits until nobody else creates a box. The caller calls end when its own creation has ended.
func (d *Driver) beginCreation(ctx context.Context, box boxKey) (end func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fault.From(err)
		}
		d.mu.Lock()
		other, ok := d.creating[box]
		if !ok {
			mine := make(chan struct{})
			d.creating[box] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.creating, box)
				close(mine)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
	}
}
