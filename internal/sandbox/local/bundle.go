//go:build linux

package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// bundle is all that the OCI configuration of a box is made from.
type bundle struct {
	id       string // the container's
	hostname string
	root     rootfs
	who      identity
	limits   sandbox.Limits
	files    string // the host directory that holds workspace/ and home/
	hosts    string // the host file to show as /etc/hosts
	cgroup   string // the box's control group; empty when the server may not make any
	caps     Capabilities
	apart    bool // whether the box has a kernel of its own, see gvisor.go
	noSwap   bool // whether the machine lets swap be limited
}

// write makes dir the bundle.
func (b bundle) write(dir string) error {
	hosts := "127.0.0.1 localhost " + b.hostname + "\n::1 localhost " + b.hostname + "\n"
	if err := os.WriteFile(b.hosts, []byte(hosts), 0o644); err != nil {
		return err
	}
	config, err := json.Marshal(b.spec())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)
}

func (b bundle) spec() *specs.Spec {
	process := b.describe(sandbox.Command{Argv: []string{pid1Path}, Dir: "/"})
	process.User = specs.User{} // not the agent: commands can neither signal nor limit process 1
	process.Env = nil
	return &specs.Spec{
		Version:  "1.0.2",
		Hostname: b.hostname,
		Root:     &specs.Root{Path: b.root.path, Readonly: true},
		Process:  process,
		Mounts:   b.mounts(),
		Linux: &specs.Linux{
			UIDMappings: b.who.uids,
			GIDMappings: b.who.gids,
			CgroupsPath: b.cgroup,
			Resources:   b.resources(),
			Seccomp:     seccomp(b.apart),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys",
				"/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/modules",
				"/proc/sched_debug", "/proc/scsi", "/proc/sysvipc", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func (b bundle) mounts() []specs.Mount {
	tmpfs := func(target, size string, options ...string) specs.Mount {
		return specs.Mount{
			Destination: target, Type: "tmpfs", Source: "tmpfs",
			Options: append([]string{"nosuid", "nodev", "size=" + size}, options...),
		}
	}
	half := fmt.Sprintf("%dm", max(1, b.limits.MemoryMB/2)) // what is in there counts as the box's memory
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"},
		},
		tmpfs("/dev/shm", half, "noexec", "mode=1777"),
	}
	if !b.apart {
		mounts = append(mounts, tmpfs("/tmp", half, "mode=1777"))
	}
	for _, path := range b.root.binds {
		mounts = append(mounts, readOnly(path, b.apart))
	}
	mounts = append(mounts, bind(b.hosts, "/etc/hosts", "ro"))
	return append(mounts, b.shared()...)
}

// shared are the mounts in which the box writes on the host's file systems.
func (b bundle) shared() []specs.Mount {
	mounts := []specs.Mount{
		bind(filepath.Join(b.files, "workspace"), sandbox.Workspace),
		bind(filepath.Join(b.files, "home"), sandbox.Home),
	}
	if b.apart {
		mounts = append(mounts, bind(filepath.Join(b.files, "tmp"), "/tmp"))
	}
	return mounts
}

func (b bundle) resources() *specs.LinuxResources {
	if b.cgroup == "" {
		return nil
	}
	memory, pids := int64(b.limits.MemoryMB)<<20, int64(b.limits.PIDs)
	period := uint64(100_000)
	quota := int64(b.limits.CPUs * float64(period))
	r := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, // the runtime adds null, zero, random, …
		Memory:  &specs.LinuxMemory{Limit: &memory},
		Pids:    &specs.LinuxPids{Limit: &pids},
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &period},
	}
	if b.apart { // its processes are no processes of this machine, and its kernel's threads are not its own
		r.Pids = nil
	}
	if b.noSwap {
		r.Memory.Swap = &memory // memory and swap together: no swap
	}
	return r
}

// describe gives one command the way the runtime wants it.
func (b bundle) describe(cmd sandbox.Command) *specs.Process {
	umask := uint32(0o022)
	dir := cmd.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(sandbox.Workspace, dir)
	}
	return &specs.Process{
		User:            specs.User{UID: b.who.agent, GID: b.who.agent, Umask: &umask},
		Args:            cmd.Argv,
		Cwd:             filepath.Clean(dir),
		Env:             b.environment(cmd.Env),
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{},
		Rlimits:         b.rlimits(),
	}
}

// environment is the box's own small one, then the root file system's, then the command's.
func (b bundle) environment(extra map[string]string) []string {
	env := map[string]string{
		"HOME": sandbox.Home, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8", "TERM": "xterm-256color",
		"PATH": hostPath,
	}
	for _, pair := range b.root.env {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "HOME" && name != "USER" {
			env[name] = value
		}
	}
	for name, value := range extra {
		env[name] = value
	}
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return pairs
}

// rlimits bound what control groups do not, and stand in for them where there are none.
func (b bundle) rlimits() []specs.POSIXRlimit {
	limit := func(name string, n uint64) specs.POSIXRlimit { return specs.POSIXRlimit{Type: name, Soft: n, Hard: n} }
	files := uint64(65536)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		files = min(files, own.Max) // raising it may be more than the server is allowed
	}
	limits := []specs.POSIXRlimit{limit("RLIMIT_CORE", 0), limit("RLIMIT_NOFILE", files)}
	if !b.caps.MemoryLimit {
		limits = append(limits, limit("RLIMIT_NPROC", uint64(b.limits.PIDs)))
	}
	if !b.caps.DiskLimit {
		limits = append(limits, limit("RLIMIT_FSIZE", uint64(b.limits.DiskMB)<<20))
	}
	return limits
}
