//go:build linux

package local

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Namespaces isolate a box. These filters reduce the part of the kernel that it can reach.

// denied are system calls that no command needs and that reach deep into the kernel. They return EPERM.
var denied = []string{
	// file systems
	"mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
	"move_mount", "open_tree", "open_tree_attr", "mount_setattr", "swapon", "swapoff", "quotactl", "quotactl_fd",
	"open_by_handle_at", "name_to_handle_at", "fanotify_init",
	// namespaces (creating them is filtered by flag; see newNamespaces)
	"setns",
	// kernel code, memory and logs
	"bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module", "kexec_load",
	"kexec_file_load", "syslog", "lookup_dcookie",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// keyrings
	"add_key", "request_key", "keyctl",
	// the machine
	"reboot", "acct", "settimeofday", "clock_settime", "clock_settime64", "adjtimex", "clock_adjtime",
	"clock_adjtime64", "stime", "sethostname", "setdomainname", "iopl", "ioperm", "vhangup", "nfsservctl",
	// rarely used parts of x86
	"modify_ldt", "personality", "vm86", "vm86old",
}

// newNamespaces are the flags that create namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// sockets are the socket families that commands may use. Others are denied, because they are old kernel code, or
// (vsock) not part of the network namespace.
var sockets = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// terminalInput are the requests that type into a terminal that someone else reads.
var terminalInput = []uint32{unix.TIOCSTI, unix.TIOCLINUX}

// allowed is the filter for every process in a box: Docker's list of allowed system calls for containers without
// capabilities, without those denied above. New system calls are denied until that list includes them. Other system
// call interfaces (32-bit, x32) are not listed as architectures, so using one ends the thread.
var allowed = sync.OnceValues(func() (*specs.LinuxSeccomp, error) {
	unprivileged := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	filter, err := seccomp.GetDefaultProfile(unprivileged)
	if err != nil {
		return nil, fmt.Errorf("read the list of system calls: %w", err)
	}
	// Calls whose arguments matter have rules of our own. The list makes clone3 return ENOSYS, because a filter cannot
	// inspect its argument block. A C library then falls back to clone.
	own := []string{"socket", "socketpair", "ioctl", "clone", "unshare", "io_setup", "fallocate"}
	for i := range filter.Syscalls {
		rule := &filter.Syscalls[i]
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool {
			return slices.Contains(denied, name) || slices.Contains(own, name)
		})
	}
	filter.Syscalls = slices.DeleteFunc(filter.Syscalls, func(rule specs.LinuxSyscall) bool { return len(rule.Names) == 0 })
	allow := func(name string, arg specs.LinuxSeccompArg) {
		filter.Syscalls = append(filter.Syscalls, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{arg}})
	}
	for _, family := range sockets {
		allow("socket", specs.LinuxSeccompArg{Index: 0, Value: family, Op: specs.OpEqualTo})
	}
	allow("socketpair", specs.LinuxSeccompArg{Index: 0, Value: unix.AF_UNIX, Op: specs.OpEqualTo})
	allow("clone", masked(0, newNamespaces, 0))
	allow("unshare", masked(0, newNamespaces|unix.CLONE_NEWTIME, 0))
	for _, arg := range others(1, terminalInput) {
		allow("ioctl", arg)
	}
	// io_setup is denied, because the kernel has only 65,536 requests of this old interface for the whole machine.
	// Programs work without it.
	enosys := uint(unix.ENOSYS)
	filter.Syscalls = append(filter.Syscalls, specs.LinuxSyscall{Names: []string{"io_setup"}, Action: specs.ActErrno, ErrnoRet: &enosys})
	// The free space of a box's disk is only its window, which is widened as the box writes. A program that allocated
	// more at once would find the disk full. If allocating is not supported, programs write instead, as on other file
	// systems without it.
	unsupported := uint(unix.EOPNOTSUPP)
	allow("fallocate", masked(1, unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_PUNCH_HOLE))
	filter.Syscalls = append(filter.Syscalls, specs.LinuxSyscall{
		Names: []string{"fallocate"}, Action: specs.ActErrno, ErrnoRet: &unsupported,
		Args: []specs.LinuxSeccompArg{masked(1, unix.FALLOC_FL_PUNCH_HOLE, 0)},
	})
	filter.Architectures = architecture()
	return filter, nil
})

// allBut is the filter for a box with its own kernel. It allows everything that is not denied explicitly. It keeps
// clone3, because that kernel returns EPERM for a denied call, and C libraries do not fall back to clone on EPERM.
// Namespaces that clone3 creates belong to that kernel.
func allBut() *specs.LinuxSeccomp {
	eperm := uint(unix.EPERM)
	deny := func(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: &eperm, Args: args}
	}
	rules := []specs.LinuxSyscall{{Names: denied, Action: specs.ActErrno, ErrnoRet: &eperm}}
	for flag := uint64(1); flag < 1<<32; flag <<= 1 {
		if newNamespaces&flag != 0 {
			rules = append(rules, deny("clone", masked(0, flag, flag)), deny("unshare", masked(0, flag, flag)))
		}
	}
	rules = append(rules, deny("unshare", masked(0, unix.CLONE_NEWTIME, unix.CLONE_NEWTIME)))
	for _, call := range []string{"socket", "socketpair"} {
		rules = append(rules, deny(call, specs.LinuxSeccompArg{Index: 0, Value: slices.Max(sockets), Op: specs.OpGreaterThan}))
		for family := range slices.Max(sockets) {
			if !slices.Contains(sockets, family) {
				rules = append(rules, deny(call, specs.LinuxSeccompArg{Index: 0, Value: family, Op: specs.OpEqualTo}))
			}
		}
	}
	for _, request := range terminalInput {
		rules = append(rules, deny("ioctl", masked(1, 0xffffffff, uint64(request))))
	}
	return &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: architecture(), Syscalls: rules}
}

func architecture() []specs.Arch {
	return []specs.Arch{map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[runtime.GOARCH]}
}

// masked matches when argument index, reduced to the mask's bits, is value.
func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

// others returns matches for all numbers except values. Exactly one match holds if the lower 32 bits of argument index
// are not among the values; the kernel looks at no other bits. A filter that allows can express "unless" only in this
// way. Together with the values, the matches cover the binary tree of all numbers: each match is a branch that leaves
// the path to a value.
func others(index uint, values []uint32) (matches []specs.LinuxSeccompArg) {
	for bit := range 32 {
		var seen []uint32
		for _, value := range values {
			branch := value>>bit ^ 1
			leads := func(v uint32) bool { return v>>bit == branch }
			if !slices.Contains(seen, branch) && !slices.ContainsFunc(values, leads) {
				seen = append(seen, branch)
				matches = append(matches, masked(index, uint64(^uint32(0)>>bit<<bit), uint64(branch<<bit)))
			}
		}
	}
	return matches
}
