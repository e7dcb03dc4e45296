//go:build linux

// Package dockertest starts a Docker engine for tests. The engine has its own directory, socket, images and containers, and no
// way to a registry.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// Engine is a running Docker engine that has the image [BaseImage].
type Engine struct {
	*client.Client

	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Socket returns the path of the engine's socket.
func (e *Engine) Socket() string { return e.dir + "/engine.sock" }

// Host returns the engine's address.
func (e *Engine) Host() string { return "unix://" + e.Socket() }

// patience limits how long an engine takes to do something.
const patience = 2 * time.Minute

// New starts an engine, and removes it when the test ends. It skips the test where no engine can be started.
func New(t testing.TB) *Engine {
	t.Helper()
	e, why := Open("")
	if why != "" {
		t.Skip(why)
	}
	t.Cleanup(e.Remove)
	return e
}

// Open starts an engine whose [BaseImage] has more programs, or returns why none can be started here. The caller removes the
// engine.
func Open(more string) (e *Engine, why string) {
	switch _, err := exec.LookPath("dockerd"); {
	case os.Getuid() != 0:
		return nil, "a Docker engine needs root"
	case err != nil:
		return nil, "dockerd is not installed: apt-get install docker.io"
	}
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		return nil, err.Error()
	}
	e = &Engine{dir: dir}
	if err = os.WriteFile(dir+"/config.json", []byte("{}"), 0o600); err == nil {
		e.Client, err = client.New(client.WithHost(e.Host()))
	}
	if err == nil {
		err = e.Start()
	}
	if err == nil {
		err = e.load(context.Background(), more)
	}
	if err != nil {
		e.Remove()
		return nil, "no Docker engine can be started here: " + err.Error()
	}
	return e, ""
}

// Start starts the engine, and waits until it answers.
func (e *Engine) Start() error {
	log, err := os.Create(e.dir + "/log")
	if err != nil {
		return err
	}
	defer log.Close()
	e.cmd = exec.Command("dockerd", "--config-file", e.dir+"/config.json", "--data-root", e.dir+"/data", "--exec-root", e.dir+"/exec",
		"--pidfile", e.dir+"/pid", "--host", e.Host(), "--bridge", "none", "--iptables=false")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	e.ended = make(chan struct{})
	started := make(chan error)
	go func() { // Pdeathsig refers to the thread, which must therefore stay as long as the engine
		runtime.LockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			_ = e.cmd.Wait()
			close(e.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err = e.Ping(context.Background(), client.PingOptions{}); err == nil {
			return nil
		}
		select {
		case <-e.ended:
			said, _ := os.ReadFile(e.dir + "/log")
			return fmt.Errorf("it ended: %s", said[max(0, len(said)-500):])
		default:
		}
		if time.Since(begin) > patience {
			return err
		}
	}
}

// Stop stops the engine and all of its containers.
func (e *Engine) Stop() {
	if e.ended == nil {
		return
	}
	_ = e.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-e.ended:
	case <-time.After(patience):
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
}

// Remove deletes the engine and its data.
func (e *Engine) Remove() {
	if e.ended != nil {
		e.Stop()
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, e.dir+"/") {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Network creates a network that reaches this machine, and nothing else, at the returned address.
func (e *Engine) Network(ctx context.Context, name string) (netip.Addr, error) {
	if _, err := e.NetworkCreate(ctx, name, client.NetworkCreateOptions{Driver: "bridge", Internal: true}); err != nil {
		return netip.Addr{}, err
	}
	made, err := e.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if err != nil {
		return netip.Addr{}, err
	}
	return made.Network.IPAM.Config[0].Gateway, nil
}

// BaseImage is built from programs of this machine, because tests cannot reach a registry.
const BaseImage = "arbe-test/base:latest"

// load makes [BaseImage], with more programs of this machine.
func (e *Engine) load(ctx context.Context, more string) error {
	rootfs, writer := io.Pipe() // the programs of a coding agent have hundreds of megabytes
	defer rootfs.Close()
	go func() { writer.CloseWithError(WriteRootFS(writer, more)) }()
	said, err := e.ImageImport(ctx, client.ImageImportSource{Source: rootfs, SourceName: "-"}, BaseImage, client.ImageImportOptions{})
	if err != nil {
		return err
	}
	defer said.Close()
	_, err = new(bytes.Buffer).ReadFrom(said)
	return err
}

// basePrograms lists the programs that the suite of sandboxes uses.
const basePrograms = `sh bash perl awk sed grep find xargs ps pkill pgrep kill cat ls cp mv rm rmdir mkdir touch ln chmod chown head tail sort uniq wc cut tr tee seq sleep true
	false test echo printf env id stat df du dd od date uname readlink realpath basename dirname mkfifo mknod mktemp sync nohup timeout nice setsid unshare nsenter mount
	umount chroot prlimit ipcrm ipcs hostname getent tar gzip base64 sha256sum md5sum cmp diff yes expr stty tty whoami pwd comm paste split nproc ldd setcap flock script truncate`

var linked = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// WriteRootFS writes an archive of a root file system with [BaseImage]'s programs, more programs, and their libraries. It leaves
// out programs that this machine does not have.
func WriteRootFS(to io.Writer, more string) error {
	w := tar.NewWriter(to)
	add := func(h tar.Header, content []byte) error {
		h.Size = int64(len(content))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	for _, dir := range []string{"usr", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "var", "root"} {
		if err := add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := add(tar.Header{Name: dir, Typeflag: tar.TypeSymlink, Linkname: "usr/" + dir, Mode: 0o777}, nil); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/nsswitch.conf": "hosts: files\n"} {
		if err := add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(content)); err != nil {
			return err
		}
	}
	if err := add(tar.Header{Name: "etc/shadow", Typeflag: tar.TypeReg, Mode: 0o600}, []byte("root:!::\n")); err != nil {
		return err
	}
	had := map[string]bool{}
	copied := func(path string) error {
		content, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, "/")
		if !strings.HasPrefix(name, "usr/") {
			name = "usr/" + name
		}
		if err != nil || had[name] {
			return err
		}
		had[name] = true
		return add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
	for program := range strings.FieldsSeq(basePrograms + " " + more) {
		path, err := exec.LookPath(program)
		if err != nil {
			continue // the checks that need it say so
		}
		for _, found := range append([]string{path}, libraries(path)...) {
			if err := copied(found); err != nil {
				return err
			}
		}
	}
	var err error
	for _, pattern := range []string{"/usr/lib/*/perl-base", "/usr/lib/locale/C.utf8"} {
		found, _ := filepath.Glob(pattern) // fails for a bad pattern only
		for _, dir := range found {
			err = errors.Join(err, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return err
				}
				return copied(path)
			}))
		}
	}
	if err == nil {
		err = w.Close()
	}
	return err
}

func submatches(pattern *regexp.Regexp, text string) (all []string) {
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// libraries returns the files that a program is linked with. It asks the program's loader, because ldd is a shell script that
// starts several processes.
func libraries(program string) []string {
	file, err := elf.Open(program)
	if err != nil {
		return nil // it is a script
	}
	defer file.Close()
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		loader, _ := io.ReadAll(part.Open()) // if it fails, the next line starts nothing
		said, _ := exec.Command(strings.TrimRight(string(loader), "\x00"), "--list", program).Output()
		return submatches(linked, string(said))
	}
	return nil // it is linked statically
}
