package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// provider is a Docker engine. It is safe for concurrent use.
type provider struct {
	cfg    Config
	engine *client.Client
	// id is the engine's own, and cores how many it has.
	id    string
	cores int

	mu sync.Mutex
	// installation is that of the boxes that this server makes; empty until it is known.
	installation string
	// used is what this server does with boxes, by ref.
	used map[string]*usage
	// restarting is held to start a box anew.
	restarting sync.Mutex

	closed context.Context
	close  context.CancelFunc
	work   sync.WaitGroup
}

// awaitRunning starts a box that does not run, and takes one in quarantine out of it.
func (p *provider) awaitRunning(ctx context.Context, ref string) error {
	return remote.Insist(ctx, func() error {
		box, err := p.find(ctx, ref)
		if err != nil {
			return err
		}
		if inQuarantine(box.Name) {
			name := remote.Prefix(box.Config.Labels[remote.InstallationLabel]) + box.Config.Labels[remote.SandboxLabel]
			if err := p.rename(ctx, ref, name); err != nil {
				return err
			}
		}
		switch box.State.Status {
		case container.StateRunning:
			return nil
		case container.StatePaused:
			return explain(ctx, p.call(ctx, func(ctx context.Context) error {
				_, err := p.engine.ContainerUnpause(ctx, ref, client.ContainerUnpauseOptions{})
				return err
			}))
		case container.StateCreated:
			if err := p.furnish(ctx, box); err != nil {
				return err
			}
		}
		return p.start(ctx, box)
	})
}

// furnish puts into a box that has never run what it has besides its image. Repeating it is harmless.
func (p *provider) furnish(ctx context.Context, box container.InspectResponse) error {
	image, err := p.inspectImage(ctx, box.Image)
	if err != nil {
		return explain(ctx, err)
	}
	keeper, err := remote.ProgramFor(processors[image.Architecture])
	if err != nil {
		return err
	}
	archive, err := furniture(keeper)
	if err != nil {
		return err
	}
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.CopyToContainer(ctx, box.ID, client.CopyToContainerOptions{
			DestinationPath: "/", Content: bytes.NewReader(archive), AllowOverwriteDirWithFile: true,
		})
		return err
	}))
}

// start starts a box. One whose start fails although the engine works has something wrong with it.
func (p *provider) start(ctx context.Context, box container.InspectResponse) error {
	err := p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.ContainerStart(ctx, box.ID, client.ContainerStartOptions{})
		return err
	})
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err) && strings.Contains(err.Error(), "network"):
		return fault.New(fault.Precondition, "the Docker engine does not have the network of sandboxes", "ask the operator to create it, or to correct docker_network").Because(err)
	case errdefs.IsNotFound(err) && !noContainer(err), errdefs.IsInvalidArgument(err), strings.Contains(err.Error(), "OCI runtime create failed"):
		return fault.New(fault.Precondition, "the sandbox cannot be started", "correct the environment's image and limits; the server's log says what the engine says").Because(err)
	}
	return explain(ctx, err)
}

func (p *provider) rename(ctx context.Context, ref, name string) error {
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.ContainerRename(ctx, ref, client.ContainerRenameOptions{NewName: name})
		return err
	}))
}

// stop ends everything in a box. Its files stay.
func (p *provider) stop(ctx context.Context, ref string) error {
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.ContainerStop(ctx, ref, client.ContainerStopOptions{Timeout: new(int)})
		return err
	}))
}

// lookup returns the ref of a spec's box, by its labels, because one in quarantine has another name.
func (p *provider) lookup(ctx context.Context, spec sandbox.Spec) (string, error) {
	found, err := p.list(ctx, filter(map[string]string{remote.SandboxLabel: spec.ID}))
	if err != nil {
		return "", err
	}
	for _, one := range found {
		if remote.Labelled(one.Labels, spec) && !ending(one.State) {
			return one.ID, nil
		}
	}
	return "", gone(nil)
}

// taken reports whether a container has a name that is not this program's. One that is just being created has no labels yet.
func (p *provider) taken(ctx context.Context, name string) bool {
	var found client.ContainerInspectResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		found, err = p.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		return err
	})
	return err == nil && found.Container.Config != nil && found.Container.Config.Labels[remote.SandboxLabel] == ""
}

// list returns containers of this program.
func (p *provider) list(ctx context.Context, only client.Filters) ([]container.Summary, error) {
	var found client.ContainerListResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		found, err = p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: only})
		return err
	})
	return found.Items, explain(ctx, err)
}

// find returns a box that is not being deleted.
func (p *provider) find(ctx context.Context, ref string) (container.InspectResponse, error) {
	box, err := p.inspect(ctx, ref)
	if err == nil && ending(box.State.Status) {
		err = gone(fmt.Errorf("the container is %s", box.State.Status))
	}
	return box, err
}

// inspect returns a container that this program has made.
func (p *provider) inspect(ctx context.Context, ref string) (container.InspectResponse, error) {
	var found client.ContainerInspectResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		found, err = p.engine.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
		return err
	})
	box := found.Container
	switch {
	case noContainer(err):
		return box, p.confirmGone(ctx, err)
	case err != nil:
		return box, explain(ctx, err)
	case box.ID != ref || box.State == nil || box.Config == nil:
		return box, unavailable(errors.New("the answer is no container"))
	case box.Config.Labels[remote.SandboxLabel] == "":
		return box, fault.New(fault.Precondition, "this container is no sandbox", "use the reference of a sandbox")
	}
	return box, nil
}

// confirmGone returns that a box is gone if the engine is the one that had it.
func (p *provider) confirmGone(ctx context.Context, cause error) error {
	var about client.SystemInfoResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		about, err = p.engine.Info(ctx, client.InfoOptions{})
		return err
	})
	if err == nil && about.Info.ID != p.id {
		err = errOther
	}
	if err != nil {
		return explain(ctx, err)
	}
	return gone(cause)
}

// call makes a request that the engine answers soon.
func (p *provider) call(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	return do(limited)
}
