//go:build linux

package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// gVisor's runtime, runsc, gives a box a kernel of its own, in a process of this machine. What runs in the
// box are then no processes of this machine, which is its strength, and why this file exists:
//
//   - The runtime's exec stays, as our child, until the command ends: its exit code is the command's.
//   - A command is ended by asking the runtime to signal it and its descendants, one by one; there are no
//     control groups below the box's. What has left its parents before that escapes.
//   - The host does not see the box's file system. It is put together a second time for the server, and
//     what both need is on the host's file systems, /tmp too.

// runsGVisor says whether a runtime is gVisor's, by asking it: the name may be a wrapper's.
func runsGVisor(command string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, command, "--version").Output()
	return err == nil && strings.HasPrefix(string(said), "runsc ")
}

// attach starts a command in a box that is apart, and returns once it runs. The child is the runtime's.
func (r *ociRuntime) attach(ctx context.Context, id string, process *specs.Process, std streams) (*child, error) {
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
	// The runtime writes the process' id when it has started it; we write when the runtime has ended.
	if err := unix.Mkfifo(call.pid, 0o600); err != nil {
		return nil, err
	}
	news, err := os.OpenFile(call.pid, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer news.Close()

	cmd := r.subcommand(context.WithoutCancel(ctx), call.log, "exec", "--process", "/proc/self/fd/3", "--internal-pid-file", call.pid, id)
	cmd.ExtraFiles = []*os.File{description}
	std.Set(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{process: cmd.Process, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state has it
		c.code = cmd.ProcessState.ExitCode()
		close(c.done)
		_, _ = news.WriteString("\n") // fails when nobody listens any more
	}()
	defer context.AfterFunc(call.ctx, func() { _ = c.process.Kill() })()
	var text [32]byte
	n, err := news.Read(text[:])
	if err != nil {
		return nil, err
	}
	if c.inside, err = strconv.Atoi(strings.TrimSpace(string(text[:n]))); err != nil {
		<-c.done
		return nil, call.explain(fmt.Errorf("exec ended with code %d", c.code))
	}
	return c, nil
}

// killApart kills a command of a box that is apart, with its descendants.
func (r *ociRuntime) killApart(id string, pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list := func() map[int]process {
		said, _ := r.subcommand(ctx, os.DevNull, "ps", id).Output() // fails when the box has ended
		return parents(string(said))
	}
	signal := func(pid int, s unix.Signal) {
		_ = r.subcommand(ctx, os.DevNull, "kill", "--pid", strconv.Itoa(pid), id, strconv.Itoa(int(s))).Run() // else it has ended
	}
	killTree(pid, list, signal)
}

// parents reads the runtime's table of processes, whose columns are not the same in all versions; as JSON
// it has their ids only.
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

// assemble puts the file system of a box that is apart together in dir, for the server.
func (b bundle) assemble(dir string) error {
	view := append([]specs.Mount{{Source: b.root.path, Destination: "/"}}, b.shared()...)
	for _, path := range b.root.binds {
		view = append(view, readOnly(path, b.apart))
	}
	for _, m := range view {
		target := filepath.Join(dir, m.Destination)
		if err := unix.Mount(m.Source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s at %s: %w", m.Source, target, err)
		}
	}
	return nil
}
