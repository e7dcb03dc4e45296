//go:build linux

// Package hostbox makes boxes for doubles of providers. A box is a machine in which commands really run: a process
// namespace with a directory as its root, in which the programs of this machine are read-only. It is for tests only,
// and protects nothing: root in a box is root on this machine.
//
// The test's own program is the first process of each box, and its sudo. A program that imports this package takes
// one of these roles if it is started in it.
package hostbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	initVariable = "ARBE_HOSTBOX_ROOT"
	nameVariable = "ARBE_HOSTBOX_NAME"
	// User is the user id of commands, who may use sudo.
	User = 1000
)

func init() {
	switch root := os.Getenv(initVariable); {
	case root != "" && os.Getpid() == 1:
		if err := beFirst(root, os.Getenv(nameVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case filepath.Base(os.Args[0]) == "sudo":
		beSudo()
	}
}

// beFirst is process 1 of a box: it makes the box and reaps orphans.
func beFirst(root, name string) error {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE)
	if err := mountAll(root); err != nil {
		return err
	}
	if err := errors.Join(unix.Sethostname([]byte(name)), os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost "+name+"\n"), 0o644)); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("ready"); err != nil {
		return err
	}
	os.Stdout.Close()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
		}
	}
	return nil
}

// mountAll makes the box's root and enters it.
func mountAll(root string) error {
	type mount struct {
		from, to, kind string
		flags          uintptr
		data           string
	}
	mounts := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{root, root, "", unix.MS_BIND, ""},
		{"/usr", root + "/usr", "", unix.MS_BIND, ""},
		{"", root + "/usr", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""},
		{"/etc/alternatives", root + "/etc/alternatives", "", unix.MS_BIND, ""},
		{filepath.Join(filepath.Dir(root), "..", "sudo"), root + "/opt/bin/sudo", "", unix.MS_BIND, ""},
		{"proc", root + "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"dev", root + "/dev", "tmpfs", unix.MS_NOSUID, "mode=755"},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.from, m.to, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		path := root + "/dev/" + device
		if err := errors.Join(os.WriteFile(path, nil, 0o666), unix.Mount("/dev/"+device, path, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, root+"/dev/"+name); err != nil {
			return err
		}
	}
	for dir, kind := range map[string][2]string{"shm": {"tmpfs", "mode=1777"}, "pts": {"devpts", "newinstance,ptmxmode=666"}} {
		path := root + "/dev/" + dir
		if err := errors.Join(os.Mkdir(path, 0o755), unix.Mount(dir, path, kind[0], unix.MS_NOSUID, kind[1])); err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	return nil
}

// beSudo runs a program as root.
func beSudo() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "-n" {
		args = args[1:]
	}
	err := errors.Join(syscall.Setgid(0), syscall.Setuid(0))
	if err == nil && len(args) > 0 {
		var path string
		if path, err = exec.LookPath(args[0]); err == nil {
			err = syscall.Exec(path, args, os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, "sudo:", err)
	os.Exit(1)
}

// Host makes boxes. It is safe for concurrent use.
type Host struct {
	dir string
	// Only are the addresses of this machine that boxes reach, if it is not empty. Boxes that were created before reach
	// everything.
	Only []netip.AddrPort
}

// New returns a host for boxes that end with the test. It skips a test that cannot make boxes.
func New(t testing.TB) *Host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the boxes of a provider's double need root")
	}
	h := &Host{dir: t.TempDir()}
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(h.dir+"/sudo", program, 0o755)
	}
	if err := errors.Join(err, os.Chmod(h.dir+"/sudo", 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	return h
}

// Box is a machine with files that outlive its stop.
type Box struct {
	root, name string
	only       []netip.AddrPort // as in [Host]
	alone      bool

	mu     sync.Mutex
	first  *exec.Cmd // nil while it is stopped
	relays []net.Listener
}

// Create creates a box that is stopped. Its name must be a host name.
func (h *Host) Create(name string) (*Box, error) {
	b := &Box{root: filepath.Join(h.dir, name, "root"), name: name, only: h.Only}
	for _, dir := range []string{"usr", "etc/alternatives", "opt/bin", "proc", "dev", "run", "var/lib", "home", "root"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Lstat("/usr/" + dir); err == nil {
			if err := os.Symlink("usr/"+dir, filepath.Join(b.root, dir)); err != nil {
				return nil, err
			}
		}
	}
	user := strconv.Itoa(User)
	for name, text := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nbox:x:" + user + ":" + user + "::/home/box:/bin/sh\n",
		"etc/group":         "root:x:0:\nbox:x:" + user + ":\n",
		"etc/nsswitch.conf": "hosts: files\n",
		"opt/bin/sudo":      "",
	} {
		if err := os.WriteFile(filepath.Join(b.root, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(b.root, "etc/shadow"), []byte("root:!::\n"), 0o600),
		os.Mkdir(filepath.Join(b.root, "tmp"), 0o755), os.Chmod(filepath.Join(b.root, "tmp"), 0o777|os.ModeSticky),
		os.Mkdir(filepath.Join(b.root, "home/box"), 0o755), os.Chown(filepath.Join(b.root, "home/box"), User, User),
	)
	return b, err
}

// Listen listens on a socket in the box, which is there for every user of it and outlives its stop.
func (b *Box) Listen(path string) (net.Listener, error) {
	dir := filepath.Join(b.root, filepath.Dir(path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	at := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)) // the address of a socket must be short
	listener, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	return listener, os.Chmod(at, 0o777)
}

// Isolate makes the box reach nothing but its own loopback, from its next start on.
func (b *Box) Isolate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone, b.only = true, nil
}

// ownNetwork reports whether the box has a network of its own.
func (b *Box) ownNetwork() bool { return b.alone || len(b.only) > 0 }

// Start starts the box. It does nothing if the box runs.
func (b *Box) Start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first != nil {
		return nil
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{initVariable + "=" + b.root, nameVariable + "=" + b.name}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC, Pdeathsig: unix.SIGKILL}
	if b.ownNetwork() {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// Pdeathsig refers to the thread that started the process, which must therefore not end before the test.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	if err := <-started; err != nil {
		return err
	}
	if said, _ := io.ReadAll(ready); string(said) != "ready" {
		return errors.Join(errors.New("the box does not start"), cmd.Wait())
	}
	b.first = cmd
	if b.ownNetwork() {
		if err := inNetwork(cmd.Process.Pid, func() error { return nil }); err != nil {
			return fmt.Errorf("the box has no loopback: %w", err)
		}
	}
	for _, to := range b.only {
		listener, err := listenIn(cmd.Process.Pid, to)
		if err != nil {
			return fmt.Errorf("the box cannot reach %s: %w", to, err)
		}
		b.relays = append(b.relays, listener)
		go relay(listener, to.String())
	}
	return nil
}

// Stop ends everything in the box. Its files stay.
func (b *Box) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first != nil {
		_ = b.first.Process.Kill()
		_ = b.first.Wait() // "killed"
		b.first = nil
	}
	for _, listener := range b.relays {
		listener.Close()
	}
	b.relays = nil
}

// Remove deletes a box with its files.
func (b *Box) Remove() error {
	b.Stop()
	return exec.Command("rm", "-rf", filepath.Dir(b.root)).Run()
}

// ErrStopped is the error of a command in a box that does not run.
var ErrStopped = errors.New("the box is stopped")

// Path is the PATH of a box.
const Path = "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Command returns a command in the box, as a user. When ctx ends, it continues and holds its output.
func (b *Box) Command(ctx context.Context, uid int, argv ...string) (*exec.Cmd, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		return nil, ErrStopped
	}
	user := strconv.Itoa(uid)
	args := []string{"--target", strconv.Itoa(b.first.Process.Pid), "--mount", "--pid", "--uts", "--ipc", "--root", "--wd",
		"--setuid", user, "--setgid", user}
	if b.ownNetwork() {
		args = append(args, "--net")
	}
	args = append(append(args, "--"), argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Env = []string{"PATH=" + Path, "HOME=/home/box"}
	return cmd, nil
}

// Write writes a file of the box as a user.
func (b *Box) Write(ctx context.Context, uid int, path string, content io.Reader) error {
	cmd, err := b.Command(ctx, uid, "/bin/sh", "-c", `cat > "$0"`, path)
	if err != nil {
		return err
	}
	cmd.Stdin = content
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}
