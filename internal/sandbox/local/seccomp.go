//go:build linux

package local

import (
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// denied are the system calls no command needs and that reach deep into the kernel: they answer EPERM.
// Everything not named here or below is allowed, because a coding agent runs arbitrary programs; the
// walls are the namespaces, this list narrows the kernel's surface behind them.
var denied = []string{
	// file systems
	"mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
	"move_mount", "open_tree", "mount_setattr", "swapon", "swapoff", "quotactl", "quotactl_fd",
	"open_by_handle_at", "name_to_handle_at", "fanotify_init",
	// namespaces (creating them is filtered by flag, see newNamespaces)
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
	// odd corners of x86
	"modify_ldt", "personality", "vm86", "vm86old",
}

// seccomp is the filter of every process in a box. Foreign system call interfaces (32-bit, x32) are not
// listed as architectures, so that using one ends the thread.
//
// A box that is apart keeps clone3: its kernel answers EPERM to whatever is denied, which no C library
// falls back from, and namespaces made in it are that kernel's.
func seccomp(apart bool) *specs.LinuxSeccomp {
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	deny := func(errno *uint, name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: errno, Args: args}
	}

	rules := []specs.LinuxSyscall{{Names: denied, Action: specs.ActErrno, ErrnoRet: &eperm}}
	if !apart {
		// A filter cannot look into clone3's argument block; a C library falls back to clone.
		rules = append(rules, deny(&enosys, "clone3"))
	}
	for _, flag := range []uint64{
		unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC,
		unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET,
	} {
		rules = append(rules, deny(&eperm, "clone", masked(0, flag, flag)), deny(&eperm, "unshare", masked(0, flag, flag)))
	}
	rules = append(rules, deny(&eperm, "unshare", masked(0, unix.CLONE_NEWTIME, unix.CLONE_NEWTIME)))

	// Sockets: unix, inet, inet6 and netlink. Others are old kernel code, or (vsock) not covered by the
	// network namespace.
	rules = append(rules, deny(&eperm, "socket", specs.LinuxSeccompArg{Index: 0, Value: unix.AF_NETLINK, Op: specs.OpGreaterThan}))
	for family := uint64(0); family < unix.AF_NETLINK; family++ {
		switch family {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
		default:
			rules = append(rules, deny(&eperm, "socket", specs.LinuxSeccompArg{Index: 0, Value: family, Op: specs.OpEqualTo}))
		}
	}

	// Typing into a terminal that somebody else reads. The kernel looks at 32 bits of the request only.
	for _, request := range []uint64{unix.TIOCSTI, unix.TIOCLINUX} {
		rules = append(rules, deny(&eperm, "ioctl", masked(1, 0xffffffff, request)))
	}

	arch := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[runtime.GOARCH]
	return &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{arch}, Syscalls: rules}
}

// masked matches when argument index, reduced to the mask's bits, is value.
func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}
