//go:build linux

package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// hostReads: nothing of the host is readable outside the documented read-only base.
func hostReads(s *suite, t *testing.T) {
	need(t, s.guarantees.SharedHost, sharedHost)
	b := s.newBox(t, small)
	b.verify(t, []check{
		{name: "no password hashes", script: "cat /etc/shadow /etc/gshadow", fails: true},
		{name: "no other homes", script: "ls /home", stdout: "agent\n"},
		{name: "nothing in /root", script: "ls -A /root 2>/dev/null; true"},
		{name: "no sockets of the host", script: "find / -xdev -path /usr -prune -o -type s -print 2>/dev/null; ls -A /run | grep -vx secrets; true"}, // /usr is left out, because it is large
		{name: "no /sys", script: "ls -A /sys 2>/dev/null; true", kernel: true},
		{name: "no block devices", script: "find /dev -type b"},
		{name: "no kernel memory or log", script: "ls /dev/mem /dev/kmem /dev/port /dev/kmsg /dev/fuse /dev/kvm 2>/dev/null; true", kernel: true},
		{
			// An entry that is not listed here is about the machine, or is new and must be reviewed.
			name: "/proc shows nothing of the machine that programs do not need",
			script: `cd /proc; for f in *; do case $f in
				[0-9]*|self|thread-self|mounts|net|sys|sysrq-trigger) ;; # of the process, or of the box
				cgroups|cpuinfo|filesystems|loadavg|meminfo|stat|uptime|version|version_signature|vmstat) ;; # what programs read
				*) [ -d $f ] && ls -A $f 2>/dev/null | sed "s|^|$f/|"; [ -f $f ] && [ "$(head -c 1 $f 2>/dev/null | wc -c)" != 0 ] && echo $f;;
			esac; done; true`,
			kernel: true,
		},
		{name: "process 1 shows neither its root, nor its files, nor its environment", script: "ls /proc/1/root/ || cat /proc/1/fd/0 || cat /proc/1/environ", fails: true},
		{name: "no process shows the server's environment", script: "cat /proc/[0-9]*/environ 2>/dev/null | grep -c " + canary + "; true", stdout: "0\n"},
		{name: "a command inherits no descriptor", script: "exec ls /proc/self/fd", stdout: "0\n1\n2\n3\n"},
	})
	t.Run("no temporary file of the host", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(canary), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, "/proc/1/root" + path, "/workspace/../.." + path} {
			if got := b.sh(t, "cat "+name); got.ExitCode == 0 {
				t.Errorf("%s could be read: %q", name, got.stdout)
			}
		}
	})
}

// writesOutside: only the working tree, the home and the temporary directories are writable.
func writesOutside(s *suite, t *testing.T) {
	need(t, s.guarantees.SharedHost, sharedHost)
	b := s.newBox(t, small)
	var checks []check
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/home", "/run", "/var", "/proc", "/.arbe"} {
		checks = append(checks, check{name: dir + " is closed", script: "touch " + dir + "/x || mkdir " + dir + "/y", fails: true})
	}
	for _, dir := range []string{"/workspace", "/home/agent", "/tmp", "/dev/shm"} {
		checks = append(checks, check{
			name:   dir + " is open",
			script: "cd " + dir + " && echo hello > f && ln -s f l && mkdir d && mv f d/ && cat d/f && rm -r d l && ls -A", stdout: "hello\n",
		})
	}
	b.verify(t, append(checks,
		check{name: "programs run where they were written", script: "printf '#!/bin/sh\necho ran' > /workspace/p && chmod +x /workspace/p && /workspace/p", stdout: "ran\n"},
		check{name: "the root cannot be remounted", script: "mount -o remount,rw /", fails: true},
		check{name: "kernel settings cannot be changed", script: "echo 1 > /proc/sys/vm/drop_caches || echo x > /proc/sys/kernel/core_pattern", fails: true},
		check{name: "sysrq cannot be triggered", script: "echo h > /proc/sysrq-trigger", fails: true},
		check{name: "no process escapes the out-of-memory killer", script: "echo -500 > /proc/self/oom_score_adj", fails: true, kernel: true},
		check{name: "no file system can be attached", script: "mount -t tmpfs none /tmp || mount --bind /tmp /workspace", fails: true},
	))
}

// processes: a box sees and reaches only its own processes.
func processes(s *suite, t *testing.T) {
	need(t, s.guarantees.SharedHost, sharedHost)
	b := s.newBox(t, small)
	b.verify(t, []check{
		{name: "only its own are visible", script: "set -- /proc/[0-9]*; echo $#", stdout: "2\n"}, // process 1 and this shell
		{name: "killing process 1 does nothing", script: "kill -9 1; kill -TERM 1; test -d /proc/1 && echo there", stdout: "there\n"},
		// It counts directories, because running orphans and unreaped ones both have one.
		{name: "orphans are reaped", script: "for i in 1 2 3; do (setsid sh -c true &); done; for i in $(seq 600); do set -- /proc/[0-9]*; test $# -eq 2 && break; sleep 0.05; done; echo $#", stdout: "2\n"},
	})
	t.Run("process 1 cannot be limited", func(t *testing.T) {
		need(t, s.guarantees.UserID != 0, "process 1 is another user's")
		if got := b.sh(t, "prlimit --pid 1 --cpu=1:1"); got.ExitCode == 0 {
			t.Error("it was limited")
		}
	})
	for name, script := range map[string]string{
		"killing its own parent":  "kill -9 $PPID",
		"killing everything":      "kill -9 -1",
		"killing its own group":   "kill -9 0",
		"killing as many as fits": "for i in $(seq 1 200); do kill -9 $i; done",
	} {
		t.Run(name+" harms the command only", func(t *testing.T) {
			b.put(t, "kept", name)
			b.sh(t, script)
			if got := b.sh(t, "cat kept"); got.stdout != name {
				t.Errorf("the next command found %q (exit code %d, %s)", got.stdout, got.ExitCode, got.stderr)
			}
		})
	}
	t.Run("those of the host cannot be signalled", func(t *testing.T) {
		if got := b.sh(t, fmt.Sprintf("kill -0 %d || kill -0 %d", os.Getpid(), os.Getppid())); got.ExitCode == 0 {
			t.Error("the box signalled the test's own process")
		}
	})
	t.Run("no other process can be traced or read", func(t *testing.T) { traces(s, t, b) })
	t.Run("no namespace is the host's", func(t *testing.T) {
		need(t, !s.guarantees.OwnKernel, sharedKernel)
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
			own, err := os.Readlink("/proc/self/ns/" + ns)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.sh(t, "readlink /proc/self/ns/"+ns); strings.TrimSpace(got.stdout) == own || got.stdout == "" {
				t.Errorf("%s: %q inside, %q outside", ns, got.stdout, own)
			}
		}
	})
}

// traces: a command attaches to no process but its own, whatever id it tries: not to arbe's process 1, nor to those of another box
// or of the host.
func traces(s *suite, t *testing.T, b *box) {
	if b.sh(t, "command -v perl").ExitCode != 0 {
		t.Skip("the box has no perl to make system calls with")
	}
	other := s.newBox(t, small)
	other.sh(t, "exec sleep 1000 >/dev/null 2>&1 &")
	ids := []string{fmt.Sprint(os.Getpid()), fmt.Sprint(os.Getppid())}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // the other box's are among them
		if _, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, e.Name())
		}
	}
	// A process that it starts itself shows that the calls are right.
	script := fmt.Sprintf(`use strict; my ($ptrace, $attach, $seize, $detach) = (%d, 16, 0x4206, 17);
		my $child = fork; if (!$child) { sleep 1000; exit }
		die "its own child cannot be traced: $!" if syscall($ptrace, $attach, $child, 0, 0) == -1;
		waitpid $child, 0; syscall($ptrace, $detach, $child, 0, 0);
		my %%tried;
		for my $id (1 .. 3000, qw(%s)) {
			next if $tried{$id}++ || $id == $$ || $id == $child;
			print "attached to $id\n" if syscall($ptrace, $attach, $id, 0, 0) != -1;
			print "seized $id\n" if syscall($ptrace, $seize, $id, 0, 0) != -1;
			for my $file ("mem", "environ") { print "opened $file of $id\n" if open my $f, "<", "/proc/$id/$file" }
		}
		kill 9, $child; print "done\n"`, unix.SYS_PTRACE, strings.Join(ids, " "))
	if got := b.run(t, sandbox.Command{Argv: []string{"perl", "-e", script}}); got.stdout != "done\n" {
		t.Errorf("%s%s", got.stdout, got.stderr)
	}
}

// privileges: there are none, and nothing grants any.
func privileges(s *suite, t *testing.T) {
	need(t, s.guarantees.SharedHost, sharedHost)
	b := s.newBox(t, small)
	user := fmt.Sprintln(s.guarantees.UserID)
	b.verify(t, []check{
		{name: "the user is an ordinary one", script: "id -u", stdout: user},
		{name: "no capability in any set", script: "grep -c '^Cap.*:[[:space:]]*0000000000000000$' /proc/self/status", stdout: "5\n"},
		{name: "no new privileges", script: "grep NoNewPrivs /proc/self/status | tr -d '[:space:]'", stdout: "NoNewPrivs:1"},
		{name: "a system call filter", script: "grep Seccomp: /proc/self/status | tr -d '[:space:]'", stdout: "Seccomp:2", kernel: true},
		{name: "a setuid program gives nothing", script: "cp $(command -v id) /workspace/me && chmod 6755 /workspace/me && /workspace/me -u", stdout: user},
		{name: "file capabilities cannot be set", script: "cp $(command -v id) /workspace/c && setcap cap_net_admin+ep /workspace/c", fails: true},
		{name: "no device nodes", script: "mknod /workspace/null c 1 3 || mknod /workspace/disk b 8 0", fails: true},
		{name: "no chroot", script: "chroot /workspace /bin/true", fails: true},
		{name: "no new user namespace", script: "unshare --user true", fails: true},
		{name: "no new mount namespace", script: "unshare --mount true", fails: true},
		{name: "no new network namespace", script: "unshare --net true", fails: true},
		{name: "no entering of namespaces", script: "nsenter --target 1 --mount true", fails: true},
		{name: "no higher priority", script: "nice -n -5 true 2>&1 | grep -q . && exit 1", fails: true},
		{name: "no other host name", script: "hostname evil", fails: true},
	})
	t.Run("no user is the host's root", func(t *testing.T) {
		need(t, !s.guarantees.OwnKernel, sharedKernel)
		if os.Getuid() != 0 {
			t.Skip("the test is not the host's root")
		}
		for line := range strings.Lines(b.sh(t, "cat /proc/self/uid_map /proc/self/gid_map").stdout) {
			if fields := strings.Fields(line); fields[1] == "0" {
				t.Errorf("the map %q reaches the host's root", line)
			}
		}
	})
}

// kernelSurface: system calls that reach deep into the kernel return an error.
func kernelSurface(s *suite, t *testing.T) {
	need(t, s.guarantees.SharedHost, sharedHost)
	b := s.newBox(t, small)
	if b.sh(t, "command -v perl").ExitCode != 0 {
		t.Skip("the box has no perl to make system calls with")
	}
	// call makes a system call and exits with its errno, or 0.
	call := func(number uintptr, args string) string {
		return fmt.Sprintf(`perl -e 'exit(syscall(%d, %s) == -1 ? $!+0 : 0)'`, number, args)
	}
	const eperm, enosys, high = int(unix.EPERM), int(unix.ENOSYS), 1 << 32
	calls := []struct {
		name   string
		number uintptr
		args   string
		want   int
	}{
		{"bpf", unix.SYS_BPF, "0, 0, 0", eperm},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, "0, 0, -1, -1, 0", eperm},
		{"userfaultfd", unix.SYS_USERFAULTFD, "0", eperm},
		{"keyctl", unix.SYS_KEYCTL, "0, -3, 0", eperm},
		{"add_key", unix.SYS_ADD_KEY, "0, 0, 0, 0, -3", eperm},
		{"request_key", unix.SYS_REQUEST_KEY, "0, 0, 0, 0", eperm},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, "1, 0", eperm},
		{"init_module", unix.SYS_INIT_MODULE, "0, 0, 0", eperm},
		{"finit_module", unix.SYS_FINIT_MODULE, "0, 0, 0", eperm},
		{"kexec_load", unix.SYS_KEXEC_LOAD, "0, 0, 0, 0", eperm},
		{"reboot", unix.SYS_REBOOT, "0, 0, 0, 0", eperm},
		{"swapon", unix.SYS_SWAPON, "0, 0", eperm},
		{"acct", unix.SYS_ACCT, "0", eperm},
		{"setns", unix.SYS_SETNS, "0, 0", eperm},
		{"mount", unix.SYS_MOUNT, "0, 0, 0, 0, 0", eperm},
		{"move_mount", unix.SYS_MOVE_MOUNT, "0, 0, 0, 0, 0", eperm},
		{"open_tree", unix.SYS_OPEN_TREE, "0, 0, 0", eperm},
		{"open_tree_attr", 467, "0, 0, 0, 0, 0", enosys},
		{"fsopen", unix.SYS_FSOPEN, "0, 0", eperm},
		{"pivot_root", unix.SYS_PIVOT_ROOT, "0, 0", eperm},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, "0, 0, 0", eperm},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, "0, 0", eperm},
		{"syslog", unix.SYS_SYSLOG, "10, 0, 0", eperm},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, "0, 0", eperm},
		{"personality", unix.SYS_PERSONALITY, "0", eperm},
		{"clone of a user namespace", unix.SYS_CLONE, fmt.Sprint(unix.CLONE_NEWUSER|int(unix.SIGCHLD)) + ", 0, 0, 0, 0", eperm},
		{"unshare of a time namespace", unix.SYS_UNSHARE, fmt.Sprint(unix.CLONE_NEWTIME), eperm},
		{"clone3", unix.SYS_CLONE3, "0, 0", enosys},
		{"a vsock socket", unix.SYS_SOCKET, fmt.Sprintf("%d, 1, 0", unix.AF_VSOCK), eperm},
		{"a packet socket", unix.SYS_SOCKET, fmt.Sprintf("%d, 3, 0", unix.AF_PACKET), eperm},
		{"a crypto socket", unix.SYS_SOCKET, fmt.Sprintf("%d, 5, 0", unix.AF_ALG), eperm},
		{"a key socket", unix.SYS_SOCKET, fmt.Sprintf("%d, 3, 2", unix.AF_KEY), eperm},
		{"a bluetooth socket", unix.SYS_SOCKET, fmt.Sprintf("%d, 3, 0", unix.AF_BLUETOOTH), eperm},
		{"a socket family hidden behind high bits", unix.SYS_SOCKET, fmt.Sprintf("%d, 1, 0", high|unix.AF_VSOCK), eperm},
		{"a pair of vsock sockets", unix.SYS_SOCKETPAIR, fmt.Sprintf("%d, 1, 0, 0", unix.AF_VSOCK), eperm},
		{"a pair of TIPC sockets", unix.SYS_SOCKETPAIR, fmt.Sprintf("%d, 1, 0, 0", unix.AF_TIPC), eperm},
		{"a socket family that does not exist yet", unix.SYS_SOCKET, "60, 1, 0", eperm},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, "0, 0, 0, 0, 0", eperm},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, "0, 0, 0", eperm},
		{"quotactl_fd", unix.SYS_QUOTACTL_FD, "0, 0, 0, 0", eperm},
		{"typing into a terminal", unix.SYS_IOCTL, fmt.Sprintf(`0, %d, 0`, unix.TIOCSTI), eperm},
		{"typing into a terminal behind high bits", unix.SYS_IOCTL, fmt.Sprintf(`0, %d, 0`, high|unix.TIOCSTI), eperm},
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			need(t, c.want == eperm || !s.guarantees.OwnKernel, sharedKernel)
			if got := b.sh(t, call(c.number, c.args)); got.ExitCode != c.want {
				t.Errorf("errno %d, want %d (%s)", got.ExitCode, c.want, got.stderr)
			}
		})
	}
	t.Run("a system call that does not exist yet is denied", func(t *testing.T) {
		need(t, !s.guarantees.OwnKernel, sharedKernel)
		for _, number := range []uintptr{470, 480, 500, 999} {
			if got := b.sh(t, call(number, "0")); got.ExitCode != eperm && got.ExitCode != enosys {
				t.Errorf("%d: errno %d", number, got.ExitCode)
			}
		}
	})
	t.Run("other requests to a terminal are allowed", func(t *testing.T) {
		const enotty = int(unix.ENOTTY)
		for _, request := range []uint32{unix.TIOCSTI - 1, unix.TIOCSTI + 1, unix.TIOCLINUX - 1, unix.TIOCLINUX + 1, unix.TCGETS, unix.TIOCGWINSZ} {
			if got := b.sh(t, call(unix.SYS_IOCTL, fmt.Sprintf("0, %d, 0", request))); got.ExitCode != enotty {
				t.Errorf("%x: errno %d", request, got.ExitCode)
			}
		}
	})
	t.Run("ordinary sockets are allowed", func(t *testing.T) {
		for _, family := range []int{unix.AF_UNIX, unix.AF_INET} {
			if got := b.sh(t, call(unix.SYS_SOCKET, fmt.Sprintf("%d, 1, 0", family))); got.ExitCode != 0 {
				t.Errorf("family %d: errno %d", family, got.ExitCode)
			}
		}
	})
	t.Run("the x32 interface is closed", func(t *testing.T) {
		if runtime.GOARCH != "amd64" {
			t.Skip("there is none on this processor")
		}
		if got := b.sh(t, call(0x40000000|unix.SYS_GETPID, "0")); got.ExitCode == 0 {
			t.Error("getpid through x32 answered")
		}
	})
}
