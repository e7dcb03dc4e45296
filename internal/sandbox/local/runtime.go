//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
)

// patience is how long one call of the runtime may take. Calls take milliseconds, and one that hangs must not hang the
// server.
const patience = time.Minute

// ociRuntime drives the runtime's command line.
//
// Containers are started detached: the runtime exits when process 1 runs. Process 1 then becomes a child of this
// process, which New makes a subreaper. Process 1 starts the commands; see supervised.go.
//
// A runtime whose containers have their own kernel (gVisor) works differently; see gvisor.go.
type ociRuntime struct {
	command   string // an absolute path
	ownKernel bool
	global    []string      // further arguments of every call
	state     string        // where the runtime keeps its own state
	scratch   string        // for files that exist during one call
	ending    chan struct{} // limits the calls that end containers at the same time
}

// newRuntime returns the runtime of an installation with its run directory.
func newRuntime(command string, ownKernel bool, run string) *ociRuntime {
	r := &ociRuntime{command: command, ownKernel: ownKernel, state: filepath.Join(run, "runtime"), scratch: run, ending: make(chan struct{}, 8)}
	if ownKernel {
		r.global = []string{"--network=none", "--oci-seccomp"}
	}
	return r
}

// run creates and starts a container with the given standard input of process 1, and returns process 1.
func (r *ociRuntime) run(ctx context.Context, id, bundleDir string, stdin *os.File) (*child, error) {
	call, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer call.end()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	client := r.client()
	client.Log, client.LogFormat = call.log, runc.JSON
	_, err = client.Run(call.ctx, id, bundleDir, &runc.CreateOpts{
		Detach: true, PidFile: call.pid, NoNewKeyring: !r.ownKernel, IO: streams{stdin, null, null},
	})
	if err != nil {
		return nil, call.explain(err)
	}
	return call.adopt()
}

// pid returns process 1 of a running container.
func (r *ociRuntime) pid(ctx context.Context, id string) (int, error) {
	state, err := r.client().State(ctx, id)
	if err != nil {
		return 0, err
	}
	if state.Status != "running" || state.Pid <= 0 {
		return 0, errors.New("it is not running")
	}
	return state.Pid, nil
}

// kill kills process 1 of a container and waits until it has ended. The kernel then kills all other processes of the
// container. The error is [errDying] if process 1 did not end in time.
func (r *ociRuntime) kill(ctx context.Context, id string) error {
	var state *runc.Container
	err := r.toEnd(ctx, func(ctx context.Context) (err error) {
		state, err = r.client().State(ctx, id)
		return err
	})
	if err != nil || state.Status == "stopped" || state.Pid <= 0 {
		return nil // never created, or gone
	}
	// Use a pidfd, because another process may get the pid when this one has ended.
	fd, err := unix.PidfdOpen(state.Pid, 0)
	if err != nil {
		return nil // ended meanwhile
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // an error means that it has ended
	for deadline := time.Now().Add(dying); ; {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, left).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case left <= 0:
			return errDying
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

func (r *ociRuntime) delete(ctx context.Context, id string) error {
	return r.toEnd(ctx, func(ctx context.Context) error {
		return r.client().Delete(ctx, id, &runc.DeleteOpts{Force: true})
	})
}

// toEnd makes a call of the runtime that is part of ending a container. The end of ctx does not interrupt it, so that
// cleaning up is completed.
func (r *ociRuntime) toEnd(ctx context.Context, do func(context.Context) error) error {
	r.ending <- struct{}{}
	defer func() { <-r.ending }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return do(ctx)
}

// subcommand makes a call that go-runc does not support, or not with these flags; client makes the others.
func (r *ociRuntime) subcommand(ctx context.Context, log string, args ...string) *exec.Cmd {
	global := append([]string{"--root", r.state, "--log", log, "--log-format", "json"}, r.global...)
	cmd := exec.CommandContext(ctx, r.command, append(global, args...)...)
	cmd.Env = []string{"PATH=" + hostPath}
	return cmd
}

func (r *ociRuntime) client() *runc.Runc {
	return &runc.Runc{Command: r.command, Root: r.state, ExtraArgs: r.global}
}

// inMemory returns content as a file that exists only in memory, because it may contain secrets.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "process")
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (r *ociRuntime) begin(ctx context.Context) (*call, error) {
	dir, err := os.MkdirTemp(r.scratch, "call-")
	if err != nil {
		return nil, err
	}
	c := &call{dir: dir, pid: filepath.Join(dir, "pid"), log: filepath.Join(dir, "log")}
	c.ctx, c.cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
	beginStart(c)
	return c, nil
}

func (c *call) end() {
	endStart(c)
	c.cancel()
	_ = os.RemoveAll(c.dir)
}

// adopt makes the process that the call started our child.
func (c *call) adopt() (*child, error) {
	text, err := os.ReadFile(c.pid)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return adopt(pid)
}

// explain returns the reason that the runtime logged for a failed call.
func (c *call) explain(err error) error {
	said := ""
	f, openErr := os.Open(c.log)
	if openErr == nil {
		defer f.Close()
		for log := json.NewDecoder(f); ; {
			var entry struct{ Level, Msg string }
			if log.Decode(&entry) != nil {
				break
			}
			if entry.Level == "error" || entry.Level == "fatal" {
				said = entry.Msg
			}
		}
	}
	if said == "" {
		return err
	}
	return &failure{said}
}

// streams are the standard input, output and error of a process, as go-runc takes them. All are files, because anything
// else would tie the output to the lifetime of the runtime.
type streams [3]*os.File

func (s streams) Set(cmd *exec.Cmd)     { cmd.Stdin, cmd.Stdout, cmd.Stderr = s[0], s[1], s[2] }
func (s streams) Stdin() io.WriteCloser { return nil }
func (s streams) Stdout() io.ReadCloser { return nil }
func (s streams) Stderr() io.ReadCloser { return nil }

func (s streams) Close() error {
	var err error
	for _, f := range s {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// hostPath is where this package looks for the machine's tools.
const hostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// dying is how long to wait for something that was killed.
const dying = time.Second

// errDying reports that a container was killed and has not ended yet.
var errDying = errors.New("it was killed but has not ended yet")
