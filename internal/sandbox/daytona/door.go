package daytona

import (
	"context"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// Relays reports whether a box was created without a network. Daytona could let such a box reach the addresses of the server
// instead. But these may change, and others may use them too, such as all customers of the network in front of the server.
//
// The owner of another account chooses the labels there, so that only the house is taken from them. A token proves that.
func (p *provider) Relays(ctx context.Context, ref string) (bool, sandbox.Labels, error) {
	if err := checkRef(ref); err != nil {
		return false, sandbox.Labels{}, err
	}
	found, err := p.find(ctx, ref)
	if err != nil {
		return false, sandbox.Labels{}, err
	}
	box, _ := remote.BoxOf(found.Labels)
	if p.cfg.Foreign {
		box.Labels = sandbox.Labels{House: box.Labels.House}
	}
	return found.NetworkBlockAll, box.Labels, nil
}
