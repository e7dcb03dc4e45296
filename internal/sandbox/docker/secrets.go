package docker

import (
	"bytes"
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// RunWithSecrets runs the keeper as the box's user, in a group of its own.
func (p *provider) RunWithSecrets(ctx context.Context, ref string, input []byte) ([]byte, int, error) {
	if err := checkRef(ref); err != nil {
		return nil, 0, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	image, err := p.inspectImage(ctx, box.Image)
	if err != nil {
		return nil, 0, explain(ctx, err)
	}
	keeper, err := remote.ProgramFor(processors[image.Architecture])
	if err != nil {
		return nil, 0, err
	}
	as := fmt.Sprintf("%d:%d", userID, protocol.SecretGroup)
	out, code, err := p.run(ctx, ref, as, []string{ownPath(keeper)}, input)
	if err != nil || code != 126 && code != 127 {
		return out, code, err
	}
	if err := p.giveKeeper(ctx, ref, keeper); err != nil { // another version of this program has made the box
		return nil, 0, err
	}
	return p.run(ctx, ref, as, []string{ownPath(keeper)}, input)
}

// giveKeeper puts a keeper into a box.
func (p *provider) giveKeeper(ctx context.Context, ref string, keeper remote.Program) error {
	archive, err := programFile(keeper)
	if err != nil {
		return fault.From(err)
	}
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.CopyToContainer(ctx, ref, client.CopyToContainerOptions{DestinationPath: "/", Content: bytes.NewReader(archive)})
		return err
	}))
}
