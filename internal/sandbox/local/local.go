//go:build linux

// Package local runs sandboxes on the server's own machine, through an OCI runtime (runc by default): no
// daemon, nothing to set up but the runtime itself.
//
// A box is a record and its files in the data directory, and, while commands run in it, a container.
// Files outlive the server, processes do not: the container is started over the same files by the first
// command that needs it, and again whenever it died. So there is one way to heal, whatever went wrong
// (the server was killed, the machine rebooted, a command killed everything it could): start it again.
//
//	<Dir>/boxes/<id>/box.json     the record; a directory without one is garbage
//	<Dir>/boxes/<id>/disk.ext4    its disk, when the machine has loop devices; files/ when not
//	<Dir>/images/<digest>/        unpacked images
//	<run>/lock                    held by the server that uses the directory
//	<run>/base                    the root file system of boxes without an image: the host's /usr, read-only
//	<run>/<id>.<start>/           what a running box needs: bundle, mounted disk; gone after a reboot
//
// As root, <run> is below /run, because the data directory may be closed to everyone (0700 below /root)
// and a box's ids must be able to reach their own files; nothing of <Dir> itself is ever shown to a box.
//
// From bottom to top: cgroup.go, disk.go, ids.go, seccomp.go and pid1.go each hide one part of the
// kernel; base.go and image.go make root file systems; bundle.go turns all that into an OCI
// configuration and runtime.go into processes, which orphans.go waits for; remains.go clears away what
// has run; gvisor.go is what is different with gVisor; container.go is one running box, box.go one box
// over its whole life; exec.go and files.go are what a [sandbox.Driver] does with it.
//
// The rule to remember: whatever a box can write (a path, a link, a file's content, an output) is
// written by an attacker. The server touches it only through the kernel's own walls: openat2 confined to
// the box's root, pipes that nobody waits on for ever, and never by a host path.
package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Driver is the [sandbox.Driver] of this machine.
type Driver struct {
	cfg Config
	place
	// instance names cfg.Dir in the references of its boxes.
	instance string
	caps     Capabilities
	base     rootfs
	images   *images

	mu     sync.Mutex
	boxes  map[string]*box
	blocks map[uint32]bool
	closed bool
}

var _ sandbox.Driver = (*Driver)(nil)

// New sweeps what a killed server left behind, finds the boxes of cfg.Dir and proves that the machine can
// run one. When it cannot, the error is a [fault.Precondition] that names what is missing.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	d, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.takeOver(ctx); err != nil {
		return nil, fault.New(fault.Precondition, "what an earlier server left of its sandboxes cannot be cleared away",
			"look for processes and mounts under "+d.place.run+", end them, and start again").Because(err)
	}
	if err := d.setUp(); err != nil {
		d.place.lock.Close()
		return nil, fault.New(fault.Precondition, "the directories for sandboxes cannot be made",
			"check that "+d.cfg.Dir+" and "+d.run+" can be written").Because(err)
	}
	if err := d.load(); err != nil {
		d.place.lock.Close()
		return nil, err
	}
	d.caps = d.capabilities(ctx)
	if err := d.probe(ctx); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

// prepare checks the configuration and fills in its defaults.
func prepare(cfg Config) (*Driver, error) {
	if pid1() == nil {
		return nil, fault.New(fault.Precondition, "local sandboxes need an x86-64 or ARM64 processor", "choose another sandbox driver")
	}
	command, err := findRuntime(cfg.Runtime)
	if err != nil {
		return nil, err
	}
	apart := runsGVisor(command)
	if apart && !asRoot() {
		return nil, fault.New(fault.Precondition, "the OCI runtime "+command+" is gVisor, which needs root",
			"run the server as root, or name runc with the setting sandbox_runtime")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.New(fault.Precondition, "the sandbox directory "+cfg.Dir+" cannot be made", "choose another data directory").Because(err)
	}
	// Resolved, because the kernel reports the files behind loop devices that way.
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err == nil {
		cfg.Dir, err = filepath.EvalSymlinks(cfg.Dir)
	}
	if err != nil {
		return nil, fault.New(fault.Precondition, "the sandbox directory "+cfg.Dir+" cannot be read", "check its permissions").Because(err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	defaults := sandbox.Limits{MemoryMB: 4096, DiskMB: 10240, PIDs: 1024, CPUs: 2}
	cfg.Limits = fill(cfg.Limits, defaults)

	runs := filepath.Join(cfg.Dir, "run")
	switch {
	case cfg.RunDir != "":
		runs = cfg.RunDir
	case asRoot():
		runs = "/run/arbe"
	}
	sum := sha256.Sum256([]byte(cfg.Dir))
	d := &Driver{
		cfg: cfg, boxes: map[string]*box{}, blocks: map[uint32]bool{},
		place: newPlace(runs, hex.EncodeToString(sum[:4]), command, apart, cfg.Log),
	}
	d.images = &images{dir: filepath.Join(cfg.Dir, "images"), run: filepath.Join(d.run, "images")}
	return d, nil
}

// asRoot says whether the server may do what only root may.
func asRoot() bool { return os.Geteuid() == 0 }

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

// fill replaces what limits leaves open.
func fill(limits, defaults sandbox.Limits) sandbox.Limits {
	if limits.MemoryMB == 0 {
		limits.MemoryMB = defaults.MemoryMB
	}
	if limits.DiskMB == 0 {
		limits.DiskMB = defaults.DiskMB
	}
	if limits.PIDs == 0 {
		limits.PIDs = defaults.PIDs
	}
	if limits.CPUs == 0 {
		limits.CPUs = defaults.CPUs
	}
	return limits
}

// setUp makes the directories and the base root file system.
func (d *Driver) setUp() error {
	if err := adoptOrphans(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(d.cfg.Dir, "boxes"), d.images.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// Passable but not listable: the ids of every box go through, to their own directory only.
	for _, dir := range []string{d.runtime.state, d.images.run} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	var err error
	if d.instance, err = instanceOf(d.cfg.Dir); err != nil {
		return err
	}
	d.base, err = hostBase(filepath.Join(d.run, "base"), d.cfg.ReadOnly)
	return err
}

// instanceOf is the name that tells a directory from those of other machines, made when there is none.
func instanceOf(dir string) (string, error) {
	path := filepath.Join(dir, "instance")
	text, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	name := strings.ToLower(rand.Text())
	return name, writeDurably(path, []byte(name+"\n"))
}

// capabilities finds out by trying.
func (d *Driver) capabilities(ctx context.Context) Capabilities {
	caps := Capabilities{UserID: agentID, OwnIDs: asRoot(), OwnKernel: d.runtime.apart}
	if !asRoot() {
		caps.UserID = int(ownIdentity().agent)
	}
	if d.group != "" {
		caps.MemoryLimit, caps.KillsAll = !d.runtime.apart, !d.runtime.apart
	}
	if asRoot() {
		trial := filepath.Join(d.run, "trial")
		image := filepath.Join(d.cfg.Dir, "trial.ext4")
		err := errors.Join(os.Mkdir(trial, 0o700), makeDisk(ctx, image, 16))
		if err == nil {
			err = mountDisk(image, trial)
		}
		caps.DiskLimit = err == nil
		if err != nil {
			d.cfg.Log.Warn("sandboxes have no disk limit: this machine has no usable loop devices", "cause", err)
		}
		if err := errors.Join(unmount(trial), os.Remove(trial), os.Remove(image)); err != nil {
			d.cfg.Log.Warn("a trial disk stays behind", "cause", err)
		}
	}
	return caps
}

// Capabilities says what boxes are held to here.
func (d *Driver) Capabilities() Capabilities { return d.caps }

// probe makes one box and runs a command in it, because nothing less tells whether the machine can.
func (d *Driver) probe(ctx context.Context) error {
	ref, err := d.Create(ctx, sandbox.Spec{ID: "arbe-probe", Limits: sandbox.Limits{DiskMB: 16}})
	if err != nil {
		return d.unusable(err)
	}
	var said strings.Builder
	result, err := d.Exec(ctx, ref, sandbox.Command{Argv: []string{"/bin/ls", "-d", "/"}, Dir: "/", Stderr: &said})
	switch {
	case err != nil:
		err = d.unusable(err)
	case result.ExitCode != 0 && d.runtime.apart: // an old one lacks system calls that a newer ls makes
		err = fault.New(fault.Precondition, "the gVisor in "+d.runtime.command+" cannot run this machine's programs",
			"install a newer one (gvisor.dev), or name runc with the setting sandbox_runtime").Because(errors.New(said.String()))
	case result.ExitCode != 0:
		err = d.unusable(errors.New("the probe's command failed: " + said.String()))
	}
	return errors.Join(err, d.Destroy(ctx, ref))
}

// unusable says why this machine cannot run boxes, as far as the runtime's words tell.
func (d *Driver) unusable(err error) error {
	detail := fault.From(err).Detail() // as text: wrapped, the innermost words would be lost
	next := "run the server as root, or choose another sandbox driver; the log has the runtime's own words"
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

// Close kills everything that runs in the boxes and unmounts their disks. Their files stay.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	var all []*box
	for _, b := range d.boxes {
		all = append(all, b)
	}
	d.mu.Unlock()

	var wg sync.WaitGroup
	for _, b := range all {
		wg.Go(func() { b.halt(ctx) })
	}
	wg.Wait()
	d.end(ctx, d.containers("")) // what boxes left that are gone
	return errors.Join(d.clear(), d.lock.Close())
}
