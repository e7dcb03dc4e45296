package docker

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
)

// connect returns a client of the engine. It makes no request.
func connect(cfg Config) (*client.Client, error) {
	options := []client.Opt{client.WithHost(cfg.Host)}
	if cfg.TLS != "" {
		file := func(name string) string { return filepath.Join(cfg.TLS, name) }
		options = append(options, client.WithTLSClientConfig(file("ca.pem"), file("cert.pem"), file("key.pem")))
	}
	engine, err := client.New(options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the Docker engine cannot be used with these settings", "correct docker_host and docker_tls").Because(err)
	}
	return engine, nil
}

// noSpace is the system's message for a full disk.
const noSpace = "no space left on device"

// explain turns an error of the client into a fault. It never concludes that a box is gone; see [provider.find].
func explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case strings.Contains(err.Error(), noSpace):
		return fault.New(fault.Exhausted, "the disk of the Docker engine is full", "delete sandboxes and images that are not needed, or ask the operator for a larger disk").Because(err)
	case errdefs.IsInvalidArgument(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return fault.New(fault.Precondition, "the Docker engine refuses that", "ask the operator to check the server's log").Because(err)
	}
	return unavailable(err)
}

func unavailable(cause error) *fault.Error {
	return fault.New(fault.Unavailable, "the Docker engine does not answer as expected", "try again later, or ask the operator whether it is running").Because(cause)
}

func gone(cause error) *fault.Error {
	return fault.New(fault.NotFound, "the sandbox no longer exists in the Docker engine", "run the command again: the thread gets a new sandbox").Because(cause)
}

// noContainer reports whether the engine says that the container does not exist, rather than that it does not know the path.
func noContainer(err error) bool {
	return errdefs.IsNotFound(err) && strings.Contains(err.Error(), "No such container")
}

var errOther = errors.New("this is a different engine from the one before")
