//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// gVisor's runtime, runsc, gives a box its own kernel, which is a process of this machine. The processes in the box are
// not processes of this machine. This is gVisor's strength, and has these consequences:
//
//   - The runtime's exec stays as our child until the command ends, and returns the command's exit code.
//   - There are no control groups below the box's. To end a command, the server asks the runtime to signal it and its
//     descendants one by one. A process that left its parents earlier escapes.
//   - The host does not see the box's file system. It is assembled a second time for the server. Files that both need
//     are on the host's file systems, including /tmp.

// runsGVisor reports whether a runtime is gVisor's. It asks the runtime, because the name may be that of a wrapper.
func runsGVisor(command string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, command, "--version").Output()
	return err == nil && strings.HasPrefix(string(said), "runsc ")
}

// attach starts a command in a box with its own kernel, and returns when it runs. The child is the runtime's process.
func (r *ociRuntime) attach(ctx context.Context, id string, process *specs.Process, std streams) (*child, error) {
	call, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer call.end()
	marshalled, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	description, err := inMemory(marshalled)
	if err != nil {
		return nil, err
	}
	defer description.Close()
	// The runtime writes the id of the process to this pipe when it has started it; we write when the runtime has
	// ended, so that the read always returns.
	if err := unix.Mkfifo(call.pid, 0o600); err != nil {
		return nil, err
	}
	news, err := os.OpenFile(call.pid, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer news.Close()

	// The runtime's process stays until the command ends. The end of ctx must not kill it.
	cmd := r.subcommand(context.WithoutCancel(ctx), call.log, "exec", "--process", "/proc/self/fd/3", "--internal-pid-file", call.pid, id)
	cmd.ExtraFiles = []*os.File{description}
	std.Set(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{process: cmd.Process, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state is in cmd
		c.code = cmd.ProcessState.ExitCode()
		close(c.done)
		_, _ = news.WriteString("\n") // fails when nobody reads any more
	}()
	defer context.AfterFunc(call.ctx, func() { _ = c.process.Kill() })()
	var text [32]byte
	n, err := news.Read(text[:])
	if err != nil {
		return nil, err
	}
	if c.inside, err = strconv.Atoi(strings.TrimSpace(string(text[:n]))); err != nil {
		<-c.done
		err := call.explain(fmt.Errorf("exec ended with code %d", c.code))
		if failed, ok := errors.AsType[*failure](err); ok { // a program's name may contain the words that reason searches for
			failed.text = strings.ReplaceAll(failed.text, process.Args[0], "the program")
		}
		return nil, err
	}
	return c, nil
}

// attached is a command in a box with its own kernel.
type attached struct {
	*child
	c       *container
	runtime *ociRuntime
}

func (a *attached) ended() <-chan struct{} { return a.done }

// exitCode returns the command's exit code. The runtime's exec also returns 128 if the box ended during the command:
// then the command was killed.
func (a *attached) exitCode() int {
	if a.code == 128 {
		select {
		case <-a.c.done:
			return 128 + int(unix.SIGKILL)
		case <-time.After(grace):
		}
	}
	return a.code
}

func (a *attached) kill() {
	a.runtime.killOwnKernel(a.c.id, a.inside)
	_ = a.process.Kill()
}

func (a *attached) forget() {}

// killOwnKernel kills a command of a box with its own kernel, and the command's descendants.
func (r *ociRuntime) killOwnKernel(id string, pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list := func() map[int]process {
		said, _ := r.subcommand(ctx, os.DevNull, "ps", id).Output() // fails when the box has ended
		return parents(string(said))
	}
	signal := func(pid int, s unix.Signal) {
		_ = r.subcommand(ctx, os.DevNull, "kill", "--pid", strconv.Itoa(pid), id, strconv.Itoa(int(s))).Run() // fails if it has ended
	}
	killTree(pid, list, signal)
}

// parents parses the runtime's process table, whose columns differ between versions. It does not use the JSON form,
// because that has only the ids.
func parents(said string) map[int]process {
	table := map[int]process{}
	var columns []string
	for line := range strings.Lines(said) {
		fields := strings.Fields(line)
		if columns == nil {
			columns = fields
			continue
		}
		var pid int
		var p process
		for i, name := range columns[:min(len(columns), len(fields))] {
			switch name {
			case "PID":
				pid, _ = strconv.Atoi(fields[i])
			case "PPID":
				p.parent, _ = strconv.Atoi(fields[i])
			}
		}
		table[pid] = p
	}
	return table
}

// assemble assembles the file system of a box with its own kernel in dir. The server needs it, because the host does
// not see the mounts of that kernel.
func (b bundle) assemble(dir string) error {
	view := append([]specs.Mount{{Source: b.root.path, Destination: "/"}}, b.shared()...)
	for _, path := range b.root.binds {
		view = append(view, readOnly(path, b.ownKernel))
	}
	for _, m := range view {
		target := filepath.Join(dir, m.Destination)
		if err := unix.Mount(m.Source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s at %s: %w", m.Source, target, err)
		}
	}
	return nil
}
