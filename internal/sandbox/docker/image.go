package docker

import (
	"context"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// checkImage refuses an image that environments may not name. The operator's default image is always allowed.
func (p *provider) checkImage(image string) error {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return fault.Newf(fault.Invalid, "write it as debian:13, or as registry/repository:tag", "%.200q is not the name of an image", image).Because(err)
	}
	if len(p.cfg.Images) == 0 || image == p.cfg.Image {
		return nil
	}
	for _, allowed := range p.cfg.Images {
		prefix, open := strings.CutSuffix(allowed, "*")
		if name := reference.FamiliarName(named); name == allowed || open && strings.HasPrefix(name, prefix) {
			return nil
		}
	}
	return fault.Newf(fault.Precondition, "use one of: "+strings.Join(p.cfg.Images, ", "), "the operator does not allow the image %s", image)
}

// checkRegistry refuses an image whose registry is not on the public internet, such as one on the engine's own machine,
// unless the operator names it. The engine resolves the name itself and follows the registry's redirects, which this check
// cannot see.
func (p *provider) checkRegistry(ctx context.Context, image string) error {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return explain(ctx, err)
	}
	registry := reference.Domain(named)
	if len(p.cfg.Images) > 0 || image == p.cfg.Image || registry == dockerHub {
		return nil
	}
	host := registry
	if name, _, err := net.SplitHostPort(registry); err == nil {
		host = name
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(host, "[]"))
	if err != nil {
		return fault.Newf(fault.Precondition, "check its name, or ask the operator to name it in the setting docker_images", "the registry %s cannot be found", registry).Because(err)
	}
	for _, ip := range addresses {
		if !outbound.Public(ip) {
			return fault.Newf(fault.Precondition, "use a registry with a public address, or ask the operator to name its images in the setting docker_images",
				"the registry %s is not on the public internet", registry)
		}
	}
	return nil
}

// dockerHub is the registry of images that do not name one.
const dockerHub = "docker.io"

// pull fetches an image unless the engine already has it.
func (p *provider) pull(ctx context.Context, image string) error {
	_, err := p.inspectImage(ctx, image)
	if !errdefs.IsNotFound(err) {
		return explain(ctx, err)
	}
	if err := p.checkRegistry(ctx, image); err != nil {
		return err
	}
	progress, err := p.engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = progress.Wait(ctx)
		progress.Close()
	}
	return explainPull(ctx, image, err)
}

func (p *provider) inspectImage(ctx context.Context, image string) (client.ImageInspectResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	return p.engine.ImageInspect(ctx, image)
}

// explainPull returns why an image could not be pulled. It searches the text, because the engine passes on the messages of
// registries as text only.
func explainPull(ctx context.Context, image string, err error) error {
	if err == nil || ctx.Err() != nil {
		return explain(ctx, err)
	}
	says := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(strings.ToLower(err.Error()), word) {
				return true
			}
		}
		return false
	}
	switch {
	case client.IsErrConnectionFailed(err), says(noSpace):
		return explain(ctx, err)
	case says("denied", "unauthorized", "authentication required", "no basic auth"):
		return fault.Newf(fault.Precondition, "check its name, or ask the operator to log in and pull it on the engine's machine",
			"the image %s does not exist, or its registry requires a login", image).Because(err)
	case says("not found", "manifest unknown", "no matching manifest", "name unknown"):
		return fault.Newf(fault.Precondition, "check its name and tag", "there is no image %s for this machine", image).Because(err)
	}
	return fault.Newf(fault.Unavailable, "try again later, or ask the operator to pull it on the engine's machine", "the image %s cannot be fetched", image).Because(err)
}
