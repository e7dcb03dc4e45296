//go:build linux

// Package local runs sandboxes on the server's own machine through an OCI runtime (runc by default). It needs no daemon
// and no setup besides the runtime.
//
// A box consists of a record and files in the data directory. While commands run in it, it also has a container. The
// first command that needs the container starts it. If the container has died, the next command starts a new one over
// the same files. This repairs a box after any failure, such as a reboot or a command that killed everything it could.
// With [Config.Grace], a container in which something runs outlives its server, and the next server continues to use
// it.
//
// Process 1 of a container is our own program (see package supervisor). It starts each command as a stub, which is in
// its control groups before it becomes the command. It also reaps the commands.
//
//	<Dir>/boxes/<id>/box.json     the record
//	<Dir>/boxes/<id>/unfinished   marks a directory without a record as garbage
//	<Dir>/boxes/<id>/disk.ext4    its disk, if the machine has loop devices; otherwise files/
//	<Dir>/boxes/<id>/records/     the output of launched commands, and how they ended
//	<Dir>/quarantine/<id>/        a box that the database does not know
//	<Dir>/images/<digest>/        unpacked images
//	<Dir>/layers/<name>/          copies of the disks of prepared boxes
//	<run>/lock                    locked by the server that uses the directory
//	<run>/base-<start>            the root file system of boxes without an image: the host's programs, read-only; in memory
//	                              if the server is root
//	<run>/<id>.<start>/           the bundle and mounted disk of a running box; gone after a reboot
//
// If the server is root, <run> is below /run. The data directory may be closed to everyone else (0700 below /root), but
// the user ids of a box must be able to reach the box's files. A box never sees <Dir> itself.
//
// The files, from bottom to top: cgroup.go, total.go, mount.go, extents.go, disk.go, ids.go, idmap.go, inotify.go, seccomp.go,
// rules.go, network_user.go, tree.go, watch.go, remove.go and pid1.go each wrap one part of the kernel. base.go,
// image.go and registry.go create root file systems. bundle.go turns all of this into an OCI configuration, and
// runtime.go starts process 1 from it. orphans.go waits for process 1, and program.go embeds its program.
//
// driver.go has what the other files share: the driver, its boxes and their containers. supervised.go talks to process 1,
// output.go moves the output of commands, and leftovers.go ends leftover processes that harm other commands.
// installation.go holds a driver's resources on the machine, and remains.go cleans up containers that have run.
// gvisor.go has the differences for gVisor. room.go, view.go and window.go give disks their space. layers.go keeps the
// disks of prepared boxes for other boxes (layered.go), and houses.go measures and limits the disk space of houses.
// stop.go and idle.go stop boxes, network.go connects them, container.go runs them, quarantine.go keeps unknown ones, and
// box.go manages a box over its whole life. launched.go, launch.go, exec.go, terminal.go, files.go and dial.go implement
// [sandbox.Launcher] and [sandbox.Dialer], with failure.go for errors. survivors.go continues to use what an earlier
// server left running. local.go opens and closes a driver, and config.go and install.go configure and install it.
//
// Treat everything that a box can write (a path, a link, a file's content, an output) as written by an attacker. The
// server accesses it only in ways that the kernel confines: with openat2 within the box's root, through pipes on which
// it never waits forever, and never by a host path.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/setting"
)

var (
	_ sandbox.Bound    = (*Driver)(nil)
	_ sandbox.Dialer   = (*Driver)(nil)
	_ sandbox.Layered  = (*Driver)(nil)
	_ sandbox.Metered  = (*Driver)(nil)
	_ sandbox.Measured = (*Driver)(nil)
)

// New cleans up what a killed server left behind, finds the boxes of cfg.Dir, and proves that the machine can run one.
// If it cannot, the error is a [fault.Precondition] that names what is missing. A temporary lack of space or other
// resources is not an error: existing boxes can be used, and Create fails until there is room.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	d, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.takeOver(ctx, d.cfg.Grace); err != nil {
		return nil, fault.New(fault.Precondition, "what an earlier server left of its sandboxes cannot be removed",
			"look for processes and mounts under "+d.installation.run+", end them, and start again").Because(err)
	}
	if err := d.setUp(); err != nil {
		d.installation.lock.Close()
		return nil, fault.New(fault.Precondition, "the directories for sandboxes cannot be created",
			"check that "+d.cfg.Dir+" and "+d.run+" can be written").Because(err)
	}
	if err := d.load(); err != nil {
		d.installation.lock.Close()
		return nil, err
	}
	d.caps = d.capabilities(ctx)
	// This needs the capabilities, because the bundle of a survivor contains them.
	d.adoptSurvivors(ctx)
	switch err := d.probe(ctx); {
	case fault.CodeOf(err) == fault.Exhausted:
		// This may be temporary, and does not affect existing boxes. Each creation checks it again.
		d.cfg.Log.Warn("no sandbox can be created at the moment; those that exist continue", "cause", fault.From(err).Detail())
	case err != nil:
		return nil, errors.Join(err, d.Close(ctx))
	}
	d.watchIdle()
	return d, nil
}

// prepare validates the configuration and fills in its defaults.
func prepare(cfg Config) (*Driver, error) {
	if pid1() == nil || supervisorProgram() == nil {
		return nil, fault.New(fault.Precondition, "local sandboxes need an x86-64 or ARM64 processor", "choose another sandbox driver")
	}
	command, err := findRuntime(cfg.Runtime)
	if err != nil {
		return nil, err
	}
	ownKernel := runsGVisor(command)
	if ownKernel && !asRoot() {
		return nil, fault.New(fault.Precondition, "the OCI runtime "+command+" is gVisor, which needs root",
			"run the server as root, or name runc with the setting sandbox_runtime")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.New(fault.Precondition, "the sandbox directory "+cfg.Dir+" cannot be created", "choose another data directory").Because(err)
	}
	// Resolve links, because the kernel reports the files behind loop devices by their resolved paths.
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err == nil {
		cfg.Dir, err = filepath.EvalSymlinks(cfg.Dir)
	}
	if err != nil {
		return nil, fault.New(fault.Precondition, "the sandbox directory "+cfg.Dir+" cannot be read", "check its permissions").Because(err)
	}
	cfg.setDefaults()
	private, err := outbound.ParseHosts(cfg.PrivateHosts...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "sandbox_private_hosts: "+err.Error(), "give hosts, or host:port, separated by commas")
	}
	if cfg.Dial == nil {
		cfg.Dial = egress.ThroughProxy(outbound.Dialer(private.Allows))
	}
	registries, err := newRegistries(cfg.Images)
	if err != nil {
		return nil, err
	}
	return newDriver(cfg, registries, command, ownKernel), nil
}

// setDefaults fills in what is not configured.
func (cfg *Config) setDefaults() {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Limits = fill(cfg.Limits, DefaultLimits)
	cfg.Total = fill(cfg.Total, MachineTotal())
	byDefault := setting.Defaults(Settings())
	cfg.Running = cmp.Or(cfg.Running, byDefault.Running)
	cfg.IdleStop = cmp.Or(cfg.IdleStop, byDefault.IdleStop)
	cfg.BackgroundStop = cmp.Or(cfg.BackgroundStop, byDefault.BackgroundStop)
	cfg.FreeMB = cmp.Or(cfg.FreeMB, byDefault.FreeMB)
	cfg.Images.SpaceMB = cmp.Or(cfg.Images.SpaceMB, byDefault.Images.SpaceMB)
	cfg.HouseMB = cmp.Or(cfg.HouseMB, byDefault.HouseMB)
	cfg.Layers.SpaceMB = cmp.Or(cfg.Layers.SpaceMB, byDefault.Layers.SpaceMB)
	cfg.Layers.HouseMB = cmp.Or(cfg.Layers.HouseMB, byDefault.Layers.HouseMB)
	cfg.Layers.Age = cmp.Or(cfg.Layers.Age, byDefault.Layers.Age)
}

// newDriver returns a driver of a complete configuration, for the executable of an OCI runtime.
func newDriver(cfg Config, registries *registries, command string, ownKernel bool) *Driver {
	runs := filepath.Join(cfg.Dir, "run")
	switch {
	case cfg.RunDir != "":
		runs = cfg.RunDir
	case asRoot():
		runs = "/run/arbe"
	}
	// The name is derived from the directory, so that the directory's next server finds what this one leaves.
	sum := sha256.Sum256([]byte(cfg.Dir))
	d := &Driver{
		cfg: cfg, boxes: map[string]*box{}, slots: map[*box]bool{}, endIdling: func() {}, blocks: map[uint32]bool{},
		installation: newInstallation(runs, hex.EncodeToString(sum[:4]), command, ownKernel, cfg.Log),
	}
	// No earlier server used this name. The boxes of earlier servers may still run.
	d.start = strings.ToLower(rand.Text()[:8])
	d.emptyDisk = sync.OnceValues(d.makeEmptyDisk)
	d.images = &images{
		dir: filepath.Join(cfg.Dir, "images"), run: filepath.Join(d.run, "images-"+d.start), space: int64(cfg.Images.SpaceMB) << 20,
		registries: registries, room: func() error { return d.room(0) },
		reached: map[string]bool{}, users: map[string]int{}, unpacking: map[string]chan struct{}{},
	}
	d.layers = &layers{
		dir: filepath.Join(cfg.Dir, "layers"), limits: cfg.Layers, log: cfg.Log,
		room: func(size int64) bool {
			free, err := d.free()
			return err == nil && free-size >= d.floor()
		},
	}
	return d
}

// findRuntime finds the runtime's executable.
func findRuntime(name string) (string, error) {
	if name == "" {
		name = "runc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fault.New(fault.Precondition, "local sandboxes need the OCI runtime "+name+", which is not installed",
			"install it (apt-get install runc), or name another with the setting sandbox_runtime").Because(err)
	}
	return filepath.Abs(path)
}

// setUp creates the directories and the base root file system.
func (d *Driver) setUp() error {
	if err := adoptOrphans(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(d.cfg.Dir, "boxes"), d.quarantine(), d.images.dir, d.layers.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(d.images.clearUnfinished(), d.layers.clearUnfinished()); err != nil {
		return err
	}
	// Others can pass through these directories but not list them: the ids of a box need only their own directory.
	for _, dir := range []string{d.runtime.state, d.images.run} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if d.group != "" {
		if err := d.cgroups.limit(d.group, d.cfg.Total); err != nil {
			d.cfg.Log.Warn("sandboxes have no limits on their total use on this machine: each sandbox has only its own", "cause", err)
		}
	}
	var err error
	if d.instance, err = instanceOf(d.cfg.Dir); err != nil {
		return err
	}
	base := filepath.Join(d.run, "base-"+d.start)
	if err := mountMemory(base); err != nil {
		return err
	}
	d.base, err = hostBase("/", base, d.cfg.ReadOnly)
	return err
}

// instanceOf returns the name that distinguishes a directory from directories of other machines. It creates the name if
// there is none.
func instanceOf(dir string) (string, error) {
	path := filepath.Join(dir, "instance")
	text, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	name := strings.ToLower(rand.Text())
	return name, writeDurably(path, []byte(name+"\n"))
}

// capabilities determines the capabilities by trying them.
func (d *Driver) capabilities(ctx context.Context) Capabilities {
	caps := Capabilities{UserID: agentID, OwnIDs: asRoot(), OwnKernel: d.runtime.ownKernel}
	caps.SecretsSeparate = !d.runtime.ownKernel && hasLandlock()
	if !asRoot() {
		caps.UserID = int(ownIdentity().agent)
	}
	if d.group != "" {
		caps.MemoryLimit, caps.KillsAll = !d.runtime.ownKernel, !d.runtime.ownKernel
	}
	if !d.runtime.ownKernel {
		err := canOpenNetwork(ctx)
		if caps.Network = err == nil; err != nil {
			d.cfg.Log.Warn("sandboxes have no network: this machine's kernel cannot redirect their connections", "cause", err)
		}
	}
	if asRoot() {
		trial := filepath.Join(d.run, "trial")
		image := filepath.Join(d.cfg.Dir, "trial.ext4")
		err := errors.Join(os.Mkdir(trial, 0o700), makeDisk(ctx, image, 16))
		if err == nil {
			err = mountDisk(image, trial)
		}
		// A full disk does not mean that loop devices are missing. Boxes must not lose their limit because of it.
		caps.DiskLimit = err == nil || noSpace(err)
		if !caps.DiskLimit {
			d.cfg.Log.Warn("sandboxes have no disk limit: this machine has no usable loop devices", "cause", err)
		}
		if err == nil && !d.runtime.ownKernel {
			mapErr := canMapIDs(trial)
			if caps.Layers = mapErr == nil; !caps.Layers {
				d.cfg.Log.Info("built environments are not cached: this machine's kernel cannot map the ids of a disk", "cause", mapErr)
			}
		}
		if err := errors.Join(unmount(trial), os.Remove(trial), os.Remove(image)); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.cfg.Log.Warn("cannot remove a trial disk", "cause", err)
		}
	}
	return caps
}

// hasLandlock reports whether the kernel has version 2 of Landlock, which process 1 needs to separate commands. With
// version 1, commands could not move files between directories.
func hasLandlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= 2
}

// Offline reports whether boxes have only their own loopback network, regardless of their policies.
func (d *Driver) Offline() bool { return !d.caps.Network }

// Capabilities returns the limits that are enforced here.
func (d *Driver) Capabilities() Capabilities { return d.caps }

// Pull gets an image.
func (d *Driver) Pull(ctx context.Context, image string) error {
	digest, err := d.images.pull(ctx, image)
	if err == nil {
		d.images.release(digest)
	}
	return err
}

// Guarantees returns the capabilities in the form that all drivers share.
func (d *Driver) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{
		MemoryLimit: d.caps.MemoryLimit, DiskLimit: d.caps.DiskLimit, KillsAll: d.caps.KillsAll, NoNetwork: true, OwnKernel: d.caps.OwnKernel,
		OwnShare: true, OutlastsLeftovers: !d.caps.OwnKernel, SecretsSeparate: d.caps.SecretsSeparate, StopsIdle: true, UserID: d.caps.UserID,
		Ports: !d.caps.OwnKernel, SecretFiles: !d.caps.OwnKernel, Images: true, Layers: d.caps.Layers,
	}
}

// probe creates a box and runs a command in it, because nothing less shows whether the machine can run boxes.
func (d *Driver) probe(ctx context.Context) error {
	ref, err := d.Create(ctx, sandbox.Spec{ID: "arbe-probe", Limits: sandbox.Limits{DiskMB: 16}})
	if fault.CodeOf(err) == fault.Exhausted {
		return err
	}
	if err != nil {
		return d.unusable(err)
	}
	var said strings.Builder
	result, err := d.Exec(ctx, ref, sandbox.Command{Argv: []string{"/bin/ls", "-d", "/"}, Dir: "/", Stderr: &said})
	switch {
	case fault.CodeOf(err) == fault.Exhausted:
	case err != nil:
		err = d.unusable(err)
	case result.ExitCode != 0 && d.runtime.ownKernel: // an old gVisor lacks system calls that a newer ls makes
		err = fault.New(fault.Precondition, "the gVisor in "+d.runtime.command+" cannot run this machine's programs",
			"install a newer one (gvisor.dev), or name runc with the setting sandbox_runtime").Because(errors.New(said.String()))
	case result.ExitCode != 0:
		err = d.unusable(errors.New("the probe's command failed: " + said.String()))
	}
	return errors.Join(err, d.Destroy(ctx, ref))
}

// unusable explains why this machine cannot run boxes, as far as the runtime's output shows it.
func (d *Driver) unusable(err error) error {
	detail := fault.From(err).Detail() // as text, because unwrapping would lose the innermost message
	next := "run the server as root, or choose another sandbox driver; the log has the runtime's own message"
	switch {
	case strings.Contains(detail, "hybrid"):
		next = "this one refuses hybrid control groups: mount version 2 alone, or name runc with the setting sandbox_runtime"
	case strings.Contains(detail, "user namespace") || strings.Contains(detail, "unshare"):
		next = "run the server as root, or allow unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces>0)"
	case strings.Contains(detail, "/proc") && strings.Contains(detail, "operation not permitted"):
		next = "inside a container, start it with --privileged, or choose another sandbox driver"
	}
	return fault.Newf(fault.Precondition, next, "this machine cannot run local sandboxes with the OCI runtime %s", d.runtime.command).Because(errors.New(detail))
}

// Close closes the driver. With a grace, a box in which launched commands or background processes run continues for
// that time, or longer if another driver of this directory starts. Close kills everything else that runs and unmounts
// its disks. The files of the boxes stay.
func (d *Driver) Close(ctx context.Context) error { return d.close(ctx, d.cfg.Grace > 0) }

// Halt is like Close, but no box continues.
func (d *Driver) Halt(ctx context.Context) error { return d.close(ctx, false) }

func (d *Driver) close(ctx context.Context, leave bool) error {
	d.mu.Lock()
	d.closed = true // so that no box is added
	d.mu.Unlock()
	d.endIdling()
	d.changes.close()

	var wg sync.WaitGroup
	var left sync.Map
	for _, b := range d.allBoxes() {
		wg.Go(func() {
			if leave {
				d.widenAhead(b)
			}
			if id, ok := b.release(leave); ok {
				left.Store(id, true)
			} else {
				b.halt(ctx)
			}
		})
	}
	wg.Wait()
	survives := func(id string) bool { _, ok := left.Load(id); return ok }
	d.end(ctx, slices.DeleteFunc(d.containers(""), survives)) // containers of boxes that no longer exist
	if len(slices.DeleteFunc(d.containers(""), func(id string) bool { return !survives(id) })) > 0 {
		return d.lock.Close()
	}
	return errors.Join(d.clear(), d.lock.Close())
}

// watchIdle starts to stop boxes that are idle for long, and to widen the windows of running boxes.
func (d *Driver) watchIdle() {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		// Check more often for a short IdleStop, because a box would otherwise run up to a minute longer.
		tick := time.NewTicker(min(time.Minute, d.cfg.IdleStop/4))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.stopIdle(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	watch.Go(func() { d.watchWindows(ctx) })
	d.endIdling = func() { cancel(); watch.Wait() }
}

// stopIdle stops every box that has been idle for long enough, and removes layers that are too old.
func (d *Driver) stopIdle(ctx context.Context) {
	if err := d.layers.makeSpace("", 0); err != nil {
		d.cfg.Log.Warn("cached environments that are too old or too many cannot be removed", "error", err)
	}
	for _, b := range d.running() {
		d.narrowBox(b)
		b.stopIf(ctx, func(c *container) bool {
			// The idle time begins with the end of a command instead of its start.
			if c.busy() {
				b.touch()
				return false
			}
			limit := cmp.Or(b.Limits.Idle, d.cfg.IdleStop)
			return b.idle() >= d.cfg.BackgroundStop || b.idle() >= limit && !d.background(c)
		})
	}
}
