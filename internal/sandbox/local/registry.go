//go:build linux

package local

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// registries are the registries from which images may come. By default, a registry is reached only at public addresses
// and gets no credentials, and its responses are limited. The reason is that members name images, so a registry may be
// anybody's server.
type registries struct {
	allowed     []string // all if empty
	private     []string
	credentials []string
	transport   http.RoundTripper
}

func newRegistries(c Images) (*registries, error) {
	r := &registries{}
	var reachable []string
	for list, names := range map[*[]string][]string{&r.allowed: c.Registries, &r.private: c.PrivateRegistries, &r.credentials: c.Credentials} {
		for _, text := range names {
			registry, err := name.NewRegistry(text, name.StrictValidation)
			if err != nil {
				return nil, fault.Newf(fault.Invalid, "write a registry as host or host:port, such as ghcr.io", "%q is not a registry", text).Because(err)
			}
			*list = append(*list, registry.RegistryStr())
		}
	}
	for _, host := range r.private {
		if _, _, err := net.SplitHostPort(host); err == nil {
			reachable = append(reachable, host)
		} else {
			reachable = append(reachable, net.JoinHostPort(host, "443"), net.JoinHostPort(host, "80"))
		}
	}
	r.transport = outbound.Transport(func(hostPort string) bool { return slices.Contains(reachable, hostPort) })
	return r, nil
}

// fetch gets an image from a registry. Its layers are fetched when they are read.
func (r *registries) fetch(ctx context.Context, reference string) (v1.Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "name an OCI image such as docker.io/library/golang:1.26", "%q is not an image reference", reference).Because(err)
	}
	registry := ref.Context().RegistryStr()
	if len(r.allowed) > 0 && !slices.Contains(r.allowed, registry) && !slices.Contains(r.private, registry) {
		return nil, fault.Newf(fault.Forbidden, "use another registry, or ask the operator to add it to the setting image_registries",
			"images of the registry %s are not allowed on this server", registry)
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(r.transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
	}
	if slices.Contains(r.credentials, registry) {
		options = append(options, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	image, err := remote.Image(ref, options...)
	if err != nil {
		return nil, unreachable(reference, err)
	}
	return image, nil
}

// unreachable explains why an image could not be fetched.
func unreachable(reference string, err error) error {
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return fault.Newf(fault.Forbidden, "use a registry with a public address, or ask the operator to add it to the setting image_private_registries",
			"the image %s leads to %s, which is not a public address", reference, refused.Address).Because(err)
	}
	return fault.New(fault.Unavailable, "the image "+reference+" cannot be fetched",
		"check its name and that this machine reaches its registry").Because(err)
}
