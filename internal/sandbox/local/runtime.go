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
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// patience is how long one call of the runtime may take. Calls take milliseconds; one that hangs must
// not hang the server.
const patience = time.Minute

// ociRuntime drives the runtime's command line.
//
// Containers and commands are started detached: the runtime exits once they run, and they become
// children of this process (which New makes a subreaper), so that their exit status is exact and their
// standard streams are our pipes and nobody else's.
//
// A runtime whose containers are not processes of this machine is apart, see gvisor.go.
type ociRuntime struct {
	command string // an absolute path
	apart   bool
	global  []string      // further arguments of every call
	state   string        // where the runtime keeps its own state
	scratch string        // for files that live as long as one call
	ending  chan struct{} // has room for as many calls as may be ending containers at once
}

// newRuntime is the runtime of one place, with the place's run directory.
func newRuntime(command string, apart bool, run string) *ociRuntime {
	r := &ociRuntime{command: command, apart: apart, state: filepath.Join(run, "runtime"), scratch: run, ending: make(chan struct{}, 8)}
	if apart {
		r.global = []string{"--network=none", "--oci-seccomp"}
	}
	return r
}

// run creates and starts a container, with process 1's standard input, and returns process 1.
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
		Detach: true, PidFile: call.pid, NoNewKeyring: !r.apart, IO: streams{stdin, null, null},
	})
	if err != nil {
		return nil, call.explain(err)
	}
	return call.adopt()
}

// exec starts a command in a container. The command's description goes through
// memory, never through a file: it may hold secrets.
func (r *ociRuntime) exec(ctx context.Context, id string, process *specs.Process, cgroup string, std streams) (*child, error) {
	if r.apart {
		return r.attach(ctx, id, process, std)
	}
	call, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer call.end()
	description, err := inMemory(process)
	if err != nil {
		return nil, err
	}
	defer description.Close()

	args := []string{"exec", "--detach", "--process", "/proc/self/fd/3", "--pid-file", call.pid}
	if cgroup != "" {
		args = append(args, "--cgroup", cgroup)
	}
	cmd := r.subcommand(call.ctx, call.log, append(args, id)...)
	cmd.ExtraFiles = []*os.File{description}
	std.Set(cmd)
	if err := cmd.Run(); err != nil {
		return nil, call.explain(err)
	}
	return call.adopt()
}

// kill kills a container's process 1, and with it the kernel kills all others, and waits until it has
// ended. [errDying] says that it was killed and has not ended in time.
func (r *ociRuntime) kill(ctx context.Context, id string) error {
	var state *runc.Container
	err := r.toEnd(ctx, func(ctx context.Context) (err error) {
		state, err = r.client().State(ctx, id)
		return err
	})
	if err != nil || state.Status == "stopped" || state.Pid <= 0 {
		return nil // never came to be, or is gone
	}
	fd, err := unix.PidfdOpen(state.Pid, 0)
	if err != nil {
		return nil // gone in between
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

// delete removes what the runtime knows of a container.
func (r *ociRuntime) delete(ctx context.Context, id string) error {
	return r.toEnd(ctx, func(ctx context.Context) error {
		return r.client().Delete(ctx, id, &runc.DeleteOpts{Force: true})
	})
}

// toEnd makes a call of the runtime that is a part of ending a container. It is not cut short by ctx:
// what is begun to be cleared away is cleared away.
func (r *ociRuntime) toEnd(ctx context.Context, do func(context.Context) error) error {
	r.ending <- struct{}{}
	defer func() { <-r.ending }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return do(ctx)
}

// subcommand is a call that go-runc does not know, or not with these flags; client makes the others.
func (r *ociRuntime) subcommand(ctx context.Context, log string, args ...string) *exec.Cmd {
	global := append([]string{"--root", r.state, "--log", log, "--log-format", "json"}, r.global...)
	cmd := exec.CommandContext(ctx, r.command, append(global, args...)...)
	cmd.Env = []string{"PATH=" + hostPath}
	return cmd
}

func (r *ociRuntime) client() *runc.Runc {
	return &runc.Runc{Command: r.command, Root: r.state, ExtraArgs: r.global}
}

// inMemory gives a value as JSON in a file that exists in memory only.
func inMemory(value any) (*os.File, error) {
	fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "process")
	if err := json.NewEncoder(f).Encode(value); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// call is one call of the runtime that starts a process.
type call struct {
	ctx           context.Context // not the caller's: what is begun is not cut short, see patience
	cancel        func()
	dir, pid, log string // files that the runtime answers through
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

// adopt makes the process that the call started ours.
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

// explain turns a failed call into what the runtime logged as its reason.
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

// streams are a process' standard input, output and error, in the shape go-runc takes them. All three
// are files: anything else would make the runtime's own life time the output's.
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
