// Package docker creates sandboxes as containers of a Docker engine, through its official client. Package remote runs their
// commands: its keeper is process 1 of each container. The driver copies the keeper in when it creates the container, so an
// image needs only a shell.
//
// A box has no capabilities and no files of the engine's machine, and its commands run as an ordinary user. It has no network
// unless the operator names one.
//
// The tests use a real engine, where they can start one.
//
// From bottom to top: config.go; client.go interprets the engine's answers; labels.go finds boxes by their labels and
// names; own_files.go makes the files that every box needs; box.go builds the configuration of containers; image.go pulls images; engine.go finds, starts and stops boxes; idle.go stops idle
// ones; run.go runs programs; this file creates and deletes boxes.
package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// openLimit limits how long the engine takes to identify itself.
const openLimit = 5 * time.Second

// Open returns a driver for an engine. It asks for the engine's id, because boxes exist in that engine only. If the engine
// does not answer, the error is [fault.Unavailable].
func Open(cfg Config) (*remote.Driver, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	p := &provider{cfg: cfg, used: map[string]*usage{}}
	if p.engine, err = connect(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	about, err := p.engine.Info(ctx, client.InfoOptions{})
	if err == nil && about.Info.ID == "" {
		err = errors.New("the engine has no id")
	}
	if err != nil {
		p.engine.Close()
		return nil, unavailable(err)
	}
	p.id, p.cores = about.Info.ID, about.Info.NCPU
	p.closed, p.close = context.WithCancel(context.Background())
	p.work.Go(p.stopIdle)
	return remote.New(p), nil
}

// Guarantees states what the engine adds. It promises neither a limit on disks nor a particular runtime, because both are up to
// the operator.
func (p *provider) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{MemoryLimit: true, NoNetwork: true, Images: true, UserID: userID}
}

// Machine identifies the engine: its boxes can only be reached through it.
func (p *provider) Machine() string {
	sum := sha256.Sum256([]byte(p.id))
	return "docker-" + hex.EncodeToString(sum[:8])
}

// Offline reports whether boxes have no network.
func (p *provider) Offline() bool { return p.cfg.Network == "" }

// Create creates a box. Creating it again finds the first one, because its name is derived from its id and an engine keeps
// names unique.
func (p *provider) Create(ctx context.Context, spec sandbox.Spec) (ref string, err error) {
	if spec.Egress.Mode == egress.Listed {
		return "", fault.New(fault.Precondition, "Docker does not limit a sandbox to the hosts that its environment lists",
			"set the environment's egress mode to open or none, or use the driver local")
	}
	image := p.cfg.Image
	if spec.Image != "" {
		image = spec.Image
	}
	if err := p.checkImage(image); err != nil {
		return "", err
	}
	p.know(spec.Labels.Installation)
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartLimit, errNeverStarts)
	defer cancel()
	ref, err = p.lookup(ctx, spec)
	if fault.CodeOf(err) == fault.NotFound {
		if err = remote.CheckHouse(ctx, p, spec.Labels, p.cfg.PerHouse, "sandboxes in the Docker engine"); err == nil {
			ref, err = p.createNamed(ctx, spec, image)
		}
	}
	if err == nil {
		err = p.awaitRunning(ctx, ref)
	}
	if err != nil {
		if context.Cause(ctx) == errNeverStarts {
			err = fault.New(fault.Unavailable, "the sandbox does not start", "try again later, or see its state in the Docker engine").Because(err)
		}
		return "", errors.Join(err, p.giveUp(context.WithoutCancel(ctx), spec))
	}
	return ref, nil
}

var errNeverStarts = errors.New("the limit for the start of a box has passed")

// know remembers the installation whose boxes this server creates.
func (p *provider) know(installation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if installation != "" {
		p.installation = installation
	}
}

// createNamed creates a box, or finds the one that another server created in the meantime.
func (p *provider) createNamed(ctx context.Context, spec sandbox.Spec, image string) (string, error) {
	if err := p.pull(ctx, image); err != nil {
		return "", err
	}
	request := p.creation(spec, image, p.cores)
	var ref string
	err := remote.Insist(ctx, func() error {
		var made client.ContainerCreateResult
		err := p.call(ctx, func(ctx context.Context) (err error) {
			made, err = p.engine.ContainerCreate(ctx, request)
			return err
		})
		if noStorage(err) {
			request.HostConfig.StorageOpt = nil
			return unavailable(err) // the next attempt asks for no storage
		}
		if err == nil {
			ref = made.ID
			return nil
		}
		// The box exists, or may exist because the answer was lost.
		found, findErr := p.lookup(ctx, spec)
		switch {
		case findErr == nil:
			ref = found
			return nil
		case errdefs.IsConflict(err) && p.taken(ctx, request.Name):
			return fault.Newf(fault.Precondition, "delete it, or rename it", "the Docker engine has another container named %s", request.Name).Because(err)
		}
		return explain(ctx, err)
	})
	return ref, err
}

// giveUp deletes a box whose creation failed. Otherwise the box would remain, and nothing would know of it.
func (p *provider) giveUp(ctx context.Context, spec sandbox.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, remote.Insistence)
	defer cancel()
	ref, err := p.lookup(ctx, spec)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	}
	return p.Destroy(ctx, ref)
}

// Destroy deletes a box. It never deletes a container that this program did not create.
func (p *provider) Destroy(ctx context.Context, ref string) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	emptied := false
	return remote.Insist(ctx, func() error {
		box, err := p.inspect(ctx, ref)
		if err != nil {
			if fault.CodeOf(err) == fault.NotFound {
				return nil
			}
			return err
		}
		if !emptied && !ending(box.State.Status) && box.State.Status != container.StateCreated {
			p.empty(ctx, ref)
			emptied = true
		}
		err = p.call(ctx, func(ctx context.Context) error {
			_, err := p.engine.ContainerRemove(ctx, ref, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return err
		})
		switch {
		case err == nil, noContainer(err):
			return nil
		case strings.Contains(err.Error(), "too many open files"):
			return fault.New(fault.Exhausted, "the Docker engine cannot delete the directories of the sandbox, because they are nested too deeply",
				"ask the operator to raise the engine's limit of open files and restart it").Because(err)
		}
		return explain(ctx, err) // another removal may be in progress; the next check shows it
	})
}

// emptyLimit limits how long a box takes to delete its own files.
const emptyLimit = 30 * time.Second

// empty makes a box delete the files that its commands wrote, as far as it can. An engine opens one file per directory level, so
// it cannot delete a tree deeper than its limit of open files. It would leave a box that is neither usable nor deleted.
func (p *provider) empty(ctx context.Context, ref string) {
	ctx, cancel := context.WithTimeout(ctx, emptyLimit)
	defer cancel()
	const script = `find "$@" -type d ! -perm -700 -execdir chmod u+rwx {} \; ; rm -rf "$@"`
	_, _, _ = p.Run(ctx, ref, []string{"/bin/sh", "-c", script, "-", sandbox.Workspace, sandbox.Home, protocol.Root}, nil)
}

func (p *provider) Probe(ctx context.Context, ref string) (sandbox.Liveness, error) {
	if err := checkRef(ref); err != nil {
		return sandbox.Unknown, err
	}
	switch _, err := p.find(ctx, ref); {
	case fault.CodeOf(err) == fault.NotFound:
		return sandbox.Gone, nil
	case err != nil:
		return sandbox.Unknown, nil
	}
	return sandbox.Live, nil
}

// Asleep reports whether a box is stopped.
func (p *provider) Asleep(ctx context.Context, ref string) (bool, error) {
	if err := checkRef(ref); err != nil {
		return false, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return false, err
	}
	return meterOf(box.State.Status).Power != sandbox.PowerOn, nil
}

// Meter says whether a box runs. It costs nothing.
func (p *provider) Meter(ctx context.Context, ref string) (sandbox.Meter, error) {
	if err := checkRef(ref); err != nil {
		return sandbox.Meter{}, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return sandbox.Meter{}, err
	}
	return meterOf(box.State.Status), nil
}

// Quarantine stops a box and marks it by its name.
func (p *provider) Quarantine(ctx context.Context, ref string) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(box.Name, "/")
	if !inQuarantine(name) {
		name = remote.CommonPrefix + quarantined + strings.TrimPrefix(name, remote.CommonPrefix)
		if err := p.rename(ctx, ref, name); err != nil {
			return "", err
		}
	}
	return "Docker: " + name, remote.Insist(ctx, func() error { return p.stop(ctx, ref) })
}

func (p *provider) List(ctx context.Context, want sandbox.Labels) (list []sandbox.Box, err error) {
	p.know(want.Installation)
	found, err := p.list(ctx, filter(remote.Filter(want)))
	for _, one := range found {
		if box, ours := listed(one); ours && box.Labels.Match(want) {
			list = append(list, box)
		}
	}
	return list, err
}

func (p *provider) Close(context.Context) error {
	p.close()
	p.work.Wait()
	return p.engine.Close()
}
