package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// usage is this server's use of a box.
type usage struct {
	programs int // running in it
	last     time.Time
	// stopping is closed once the idle box has stopped; nil if no stop is in progress.
	stopping chan struct{}
}

// provider is a Docker engine. It is safe for concurrent use.
type provider struct {
	cfg    Config
	engine *client.Client
	// id is the engine's id, and cores the number of its cores.
	id    string
	cores int

	mu sync.Mutex
	// installation is the label of the boxes that this server creates; empty until it is known.
	installation string
	// used tracks this server's use of boxes, by ref.
	used map[string]*usage
	// restarting is held while a box is restarted.
	restarting sync.Mutex

	closed context.Context
	close  context.CancelFunc
	work   sync.WaitGroup
}

// awaitRunning starts a box if necessary, and releases it from quarantine.
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
			if err := p.prepare(ctx, box); err != nil {
				return err
			}
		}
		return p.start(ctx, box)
	})
}

// prepare copies the files that every box needs into a box that has never run. Repeating it before the box runs is harmless.
func (p *provider) prepare(ctx context.Context, box container.InspectResponse) error {
	image, err := p.inspectImage(ctx, box.Image)
	if err != nil {
		return explain(ctx, err)
	}
	keeper, err := remote.ProgramFor(processors[image.Architecture])
	if err != nil {
		return err
	}
	archive, err := ownFiles(keeper)
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

// start starts a box. If the engine works but the start fails, the box itself is at fault.
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
		return fault.New(fault.Precondition, "the sandbox cannot be started", "correct the environment's image and limits; the server's log has the engine's message").Because(err)
	}
	return explain(ctx, err)
}

func (p *provider) rename(ctx context.Context, ref, name string) error {
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.ContainerRename(ctx, ref, client.ContainerRenameOptions{NewName: name})
		return err
	}))
}

// stop ends all processes of a box. Its files stay.
func (p *provider) stop(ctx context.Context, ref string) error {
	return explain(ctx, p.call(ctx, func(ctx context.Context) error {
		_, err := p.engine.ContainerStop(ctx, ref, client.ContainerStopOptions{Timeout: new(int)})
		return err
	}))
}

// lookup finds a spec's box by its labels, because a box in quarantine has a different name.
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

// taken reports whether a container that is not ours has this name. A container that is still being created has no labels
// yet.
func (p *provider) taken(ctx context.Context, name string) bool {
	var found client.ContainerInspectResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		found, err = p.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		return err
	})
	return err == nil && found.Container.Config != nil && found.Container.Config.Labels[remote.SandboxLabel] == ""
}

// list returns this program's containers.
func (p *provider) list(ctx context.Context, only client.Filters) ([]container.Summary, error) {
	var found client.ContainerListResult
	err := p.call(ctx, func(ctx context.Context) (err error) {
		found, err = p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: only})
		return err
	})
	return found.Items, explain(ctx, err)
}

// find returns a box unless it is being deleted.
func (p *provider) find(ctx context.Context, ref string) (container.InspectResponse, error) {
	box, err := p.inspect(ctx, ref)
	if err == nil && ending(box.State.Status) {
		err = gone(fmt.Errorf("the container is %s", box.State.Status))
	}
	return box, err
}

// inspect returns a container if this program created it.
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
		return box, unavailable(errors.New("the answer does not describe a container"))
	case box.Config.Labels[remote.SandboxLabel] == "":
		return box, fault.New(fault.Precondition, "this container is not a sandbox", "use the reference of a sandbox")
	}
	return box, nil
}

// confirmGone returns the fault that a box is gone, but only if this is the engine that had it.
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

// call makes a request that the engine is expected to answer quickly.
func (p *provider) call(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	return do(limited)
}
