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
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// bundle holds the input for the OCI configuration of a box.
type bundle struct {
	id        string // the container's
	hostname  string
	root      rootfs
	who       identity
	limits    sandbox.Limits
	files     string // the host directory that holds workspace/ and home/
	hosts     string // the host file to show as /etc/hosts
	cgroup    string // the box's control group; empty if the server cannot create any
	caps      Capabilities
	networked bool // whether the box can have a network; see network.go
	ownKernel bool // whether the box has its own kernel; see gvisor.go
	noSwap    bool // whether the machine supports limits on swap
}

// write writes the bundle to dir.
func (b bundle) write(dir string) error {
	hosts := "127.0.0.1 localhost " + b.hostname + "\n::1 localhost " + b.hostname + "\n"
	if err := os.WriteFile(b.hosts, []byte(hosts), 0o644); err != nil {
		return err
	}
	if b.networked {
		if err := os.WriteFile(b.resolver(), []byte(resolvConf), 0o644); err != nil {
			return err
		}
	}
	spec, err := b.spec()
	if err != nil {
		return err
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)
}

// resolver returns the host file to show as /etc/resolv.conf.
func (b bundle) resolver() string { return b.hosts + ".resolv" }

func (b bundle) spec() (*specs.Spec, error) {
	filter := allBut()
	if !b.ownKernel {
		var err error
		if filter, err = allowed(); err != nil {
			return nil, err
		}
	}
	process := b.describe(sandbox.Command{Argv: []string{pid1Path}, Dir: "/"})
	process.User = specs.User{} // not the agent, so that commands can neither signal nor limit process 1
	process.Env = nil
	if !b.ownKernel {
		b.makeSupervisor(process)
	}
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
			Sysctl:      b.sysctl(),
			Seccomp:     filter,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: []string{"/proc/sys", "/proc/sysrq-trigger"},
		},
	}, nil
}

// maskedPaths are the files and directories of /proc that describe the whole machine, such as its disks, devices,
// interrupts and memory. No program of a box needs them. The runtime skips those that the kernel does not have.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/bootconfig", "/proc/buddyinfo", "/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/consoles",
	"/proc/crypto", "/proc/devices", "/proc/diskstats", "/proc/dma", "/proc/driver", "/proc/dynamic_debug", "/proc/execdomains", "/proc/fb",
	"/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users",
	"/proc/keys", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/locks",
	"/proc/mdstat", "/proc/misc", "/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure",
	"/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sysvipc",
	"/proc/timer_list", "/proc/timer_stats", "/proc/tty", "/proc/vmallocinfo", "/proc/zoneinfo",
}

// mostTerminals is the maximum number of pseudo-terminals of a box. The kernel has 4,096 for the whole machine.
const mostTerminals = 64

func (b bundle) mounts() []specs.Mount {
	tmpfs := func(target string, eighths int, options ...string) specs.Mount {
		size, files := b.memoryShare(eighths), max(64, b.limits.MemoryMB*16*eighths)
		return specs.Mount{
			Destination: target, Type: "tmpfs", Source: "tmpfs",
			Options: append([]string{"nosuid", "nodev", fmt.Sprintf("size=%d", size), fmt.Sprintf("nr_inodes=%d", files)}, options...),
		}
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", fmt.Sprintf("max=%d", mostTerminals)},
		},
		tmpfs("/dev/shm", shmEighths, "noexec", "mode=1777"),
	}
	if !b.ownKernel {
		mounts = append(mounts, tmpfs("/tmp", tmpEighths, "mode=1777"))
	}
	if !b.ownKernel {
		mounts = append(mounts, specs.Mount{
			Destination: sandbox.SecretFolder, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "noexec", "mode=755", fmt.Sprintf("size=%d", secretSpace), "nr_inodes=4096"},
		})
	}
	for _, path := range b.root.binds {
		mounts = append(mounts, readOnly(path, b.ownKernel))
	}
	mounts = append(mounts, bind(b.hosts, "/etc/hosts", "ro"))
	if b.networked {
		mounts = append(mounts, bind(b.resolver(), "/etc/resolv.conf", "ro"))
	}
	return append(mounts, b.shared()...)
}

// Memory that no process holds cannot be freed when the box is full. Each kind of it therefore gets a share of the
// box's memory: the contents of files in memory, plus a sixteenth for their inodes; and the shared memory, queues and
// semaphores of System V. Together they leave more than a third for processes.
const (
	tmpEighths = 2
	shmEighths = 1
)

// sysctl returns the limits of System V IPC, because killing processes does not free its memory.
func (b bundle) sysctl() map[string]string {
	const (
		queueSize     = 16 << 10 // the kernel's default for one queue
		semaphoreSize = 128
	)
	sixteenth := b.memoryShare(1) / 2
	return map[string]string{
		"kernel.shmall": fmt.Sprint(b.memoryShare(shmEighths) / int64(os.Getpagesize())),
		"kernel.msgmni": fmt.Sprint(max(16, min(32000, sixteenth/queueSize))),
		"kernel.sem":    fmt.Sprintf("32000 %d 500 %d", sixteenth/semaphoreSize, max(128, min(32000, sixteenth/semaphoreSize/64))),
	}
}

// memoryShare returns a part of the box's memory, in bytes.
func (b bundle) memoryShare(eighths int) int64 {
	return max(1<<20, int64(b.limits.MemoryMB)<<20*int64(eighths)/8)
}

// shared returns the mounts through which the box writes to the host's file systems.
func (b bundle) shared() []specs.Mount {
	mounts := []specs.Mount{
		bind(filepath.Join(b.files, "workspace"), sandbox.Workspace),
		bind(filepath.Join(b.files, "home"), sandbox.Home),
	}
	if b.ownKernel {
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
	if b.ownKernel { // the limit would count the threads of its kernel instead of its processes
		r.Pids = nil
	}
	if b.noSwap {
		r.Memory.Swap = &memory // this limits memory and swap together, so there is no swap
	}
	return r
}

// describe describes a command for the runtime.
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

// makeSupervisor makes the process the box's supervisor. It may become the box's user if that is another user, and it
// keeps its memory small. Most limits of commands do not apply to it, because a Go program that reaches its process
// limit dies.
func (b bundle) makeSupervisor(process *specs.Process) {
	process.Args = []string{supervisorPath}
	process.Env = []string{"GOMAXPROCS=2", "GOGC=20"}
	process.Rlimits = slices.DeleteFunc(process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type != "RLIMIT_CORE" && l.Type != "RLIMIT_NOFILE" })
	if b.who.agent != 0 {
		needed := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP"}
		process.Capabilities = &specs.LinuxCapabilities{Bounding: needed, Effective: needed, Permitted: needed}
	}
}

// limitNumbers are the kernel's numbers for the limits of rlimits.
var limitNumbers = map[string]uint32{
	"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
}

// maxSearched is the maximum number of PATH directories in which a program is searched. Otherwise a PATH of empty names
// could make the server use a hundred times its size in memory.
const maxSearched = 256

// stub describes a command for the supervisor. Other commands may not inspect a command with its own environment,
// because its environment may hold secrets.
func (b bundle) stub(cmd sandbox.Command) supervisor.Command {
	process := b.describe(cmd)
	stub := supervisor.Command{
		Argv: process.Args, Env: process.Env, Dir: process.Cwd, UID: process.User.UID, GID: process.User.GID, Own: len(cmd.Env) > 0,
		Terminal: cmd.Terminal != nil,
	}
	if cmd.Terminal != nil && cmd.Terminal.Kind != "" {
		for i, pair := range stub.Env {
			if strings.HasPrefix(pair, "TERM=") {
				stub.Env[i] = "TERM=" + cmd.Terminal.Kind
			}
		}
	}
	for _, l := range process.Rlimits {
		stub.Limits = append(stub.Limits, supervisor.Limit{Resource: limitNumbers[l.Type], Value: l.Hard})
	}
	name := cmd.Argv[0]
	if strings.Contains(name, "/") {
		stub.Paths = []string{name}
		return stub
	}
	for _, pair := range process.Env {
		path, ok := strings.CutPrefix(pair, "PATH=")
		if !ok || path == "" {
			continue
		}
		for dir := range strings.SplitSeq(path, ":") {
			if len(stub.Paths) == maxSearched {
				break
			}
			stub.Paths = append(stub.Paths, filepath.Join(dir, name))
		}
	}
	return stub
}

// environment combines the box's small environment, the root file system's and the command's.
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

// rlimits returns limits that control groups do not have, and substitutes where there are no control groups.
func (b bundle) rlimits() []specs.POSIXRlimit {
	limit := func(name string, n uint64) specs.POSIXRlimit { return specs.POSIXRlimit{Type: name, Soft: n, Hard: n} }
	files := uint64(65536)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		files = min(files, own.Max) // the server may not be allowed to raise it
	}
	// The kernel also limits pending signals for all namespaces of one user together, and all boxes belong to one user.
	// Otherwise one box could use them all.
	var signals unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_SIGPENDING, &signals)
	limits := []specs.POSIXRlimit{
		limit("RLIMIT_CORE", 0), limit("RLIMIT_NOFILE", files), limit("RLIMIT_MSGQUEUE", 0),
		limit("RLIMIT_SIGPENDING", min(signals.Max, max(128, min(4096, signals.Max/128)))),
	}
	if !b.caps.MemoryLimit {
		limits = append(limits, limit("RLIMIT_NPROC", uint64(b.limits.PIDs)))
	}
	if !b.caps.DiskLimit {
		limits = append(limits, limit("RLIMIT_FSIZE", uint64(b.limits.DiskMB)<<20))
	}
	return limits
}

// resolvConf is the content of /etc/resolv.conf in a box with a network.
const resolvConf = "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n"
