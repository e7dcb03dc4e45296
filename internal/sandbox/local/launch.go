//go:build linux

package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"path/filepath"
	"slices"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// Launched commands outlive the server that started them; see [sandbox.Launcher]. Their output is in a record
// (recording.go), which process 1 of the box writes.

var _ sandbox.Launcher = (*Driver)(nil)

// followPatience is the longest time that Follow waits before it checks whether more output can come. Unlocking a
// record causes no event, because the kernel closes the files of a process that ends before it unlocks them.
const followPatience = time.Second

// killSession kills the processes that an ended command left in its session, on machines without control groups. The
// session's number may belong to another session by now. If the first process of that session runs, nothing of the
// command's session is left, because the kernel does not reuse the number of an existing session. If it has ended too,
// only processes of this box are killed.
func (b *box) killSession(l launched) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.running == nil || l.pid == 0 {
		return
	}
	if p, err := readProcess(l.pid); err == nil && p.started != l.started {
		return
	}
	inside, err := os.Readlink(pidNamespace(b.running.process.Pid))
	if err != nil {
		return // the box has ended
	}
	var killed []int
	for pid, p := range processes() {
		if p.session != l.pid {
			continue
		}
		if of, err := os.Readlink(pidNamespace(pid)); err == nil && of == inside {
			signalProcess(pid, unix.SIGKILL)
			killed = append(killed, pid)
		}
	}
	awaitDeath(killed)
}

func pidNamespace(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }

// Launches reports whether commands can be launched. They cannot with gVisor, because its sandboxes end with their
// server.
func (d *Driver) Launches() bool { return !d.runtime.ownKernel }

// Launch starts a recorded command.
func (d *Driver) Launch(ctx context.Context, ref, id string, cmd sandbox.Command) error {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	if cmd.Terminal != nil && (!cmd.Input || !cmd.Merged) {
		return fault.New(fault.Invalid, "a command with a terminal has one output, and an input", "set Input and Merged")
	}
	if cmd.Stdin != nil || cmd.Stdout != nil || cmd.Stderr != nil || cmd.Timeout != 0 {
		return fault.New(fault.Invalid, "a launched command has no input, output or time limit of its own", "leave them out, or redirect inside the command")
	}
	if !d.Launches() {
		return fault.New(fault.Precondition, "gVisor's sandboxes cannot run a command that outlives the server", "run it with another runtime")
	}
	for attempt := 1; ; attempt++ {
		file, err := newRecord(name)
		if errors.Is(err, os.ErrExist) {
			// A command that never began can be launched again: its stub ended with its server, so nothing of it has
			// run or will run.
			if neverBegun(name) {
				err = os.Remove(name)
			} else {
				return nil // it was already launched
			}
			if err == nil || errors.Is(err, os.ErrNotExist) {
				continue
			}
		}
		if err != nil {
			return readable(ctx, err, "the command could not be started")
		}
		rec := &recording{file: file, launch: id}
		err = d.launchRecorded(ctx, b, cmd, rec)
		rec.close()
		if err == nil {
			return nil
		}
		_ = os.Remove(name) // nothing has run
		var said strings.Builder
		refused := cmd
		refused.Stdout, refused.Stderr = &said, &said
		result, err := notStarted(ctx, refused, err, time.Now())
		if err == nil {
			if err := recordEnd(name, said.String(), result.ExitCode, cmd.Merged); err != nil {
				return readable(ctx, err, "the command could not be started")
			}
			return nil
		}
		// Retry here, because each attempt needs a new record.
		if fault.CodeOf(err) != fault.Exhausted || attempt == attempts {
			return err
		}
	}
}

func (d *Driver) launchRecorded(ctx context.Context, b *box, cmd sandbox.Command, rec *recording) (err error) {
	var std streams
	defer func() { std.Close() }()
	defer func() {
		if err != nil && rec.input != nil {
			rec.input.Close()
		}
	}()
	if cmd.Terminal == nil { // a terminal is opened in the container
		if err := rec.open(cmd, &std); err != nil {
			return readable(ctx, err, "the command could not be started")
		}
	}
	c, run, err := d.launchCommand(ctx, b, cmd, fate{background: true, record: rec}, std)
	if err == nil {
		go d.attend(c, run.(*supervised))
	}
	return err
}

// Input opens the standard input of a launched command.
func (d *Driver) Input(ctx context.Context, ref, id string) (io.WriteCloser, error) {
	gone := fault.New(fault.Precondition, "the command's input is not open: it has ended, it has none, or it belongs to an earlier server", "run it again")
	b, record, l, err := d.runningLaunch(ref, id)
	if err != nil {
		return nil, readable(ctx, err, "the command's input could not be opened")
	}
	if record == nil {
		return nil, gone
	}
	defer record.Close()
	if terminal := b.terminalOf(ctx, record, l); terminal != nil {
		return terminal, nil
	}
	if s := b.launchedCommand(l); s != nil && s.input != nil {
		return &launchedInput{File: s.input, d: d, ref: ref, id: id}, nil
	}
	return nil, gone
}

// launchedInput is the standard input of a launched command.
type launchedInput struct {
	*os.File
	d       *Driver
	ref, id string
}

// Close ends the input. It also sends a message to process 1, because process 1 also holds the input open.
func (i *launchedInput) Close() error {
	err := i.File.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, i.d.sendRecordMessage(ctx, i.ref, i.id, []byte{supervisor.Version, supervisor.EndInput}))
}

// Release releases a part of a command's record.
func (d *Driver) Release(ctx context.Context, ref, id string, position int64) error {
	return d.sendRecordMessage(ctx, ref, id, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Release}, uint64(position)))
}

// Extend raises the size limit of a command's record.
func (d *Driver) Extend(ctx context.Context, ref, id string, size int64) error {
	return d.sendRecordMessage(ctx, ref, id, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Extend}, uint64(size)))
}

// sendRecordMessage sends process 1 a message about a command's record. It does nothing if the record is no longer
// being written.
func (d *Driver) sendRecordMessage(ctx context.Context, ref, id string, message []byte) error {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	record, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return readable(ctx, err, "the command's record could not be opened")
	}
	defer record.Close()
	b.mu.RLock()
	running := b.running
	b.mu.RUnlock()
	if l, ok := readLaunched(record); !ok || !l.runs() || running == nil || running.door == nil {
		return nil
	}
	conn, settled, err := running.door.connect(ctx, patience)
	if err == nil {
		defer conn.Close()
		defer settled()
		_, _, err = conn.WriteMsgUnix(message, unix.UnixRights(int(record.Fd())), nil)
	}
	if err != nil {
		return readable(ctx, err, "the sandbox does not answer")
	}
	return nil
}

// Follow delivers the record of a command.
func (d *Driver) Follow(ctx context.Context, ref, id string, from int64, to func(sandbox.Record) error) error {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return fault.New(fault.NotFound, "the command "+id+" was not launched in this sandbox, or was forgotten", "launch it")
	}
	if err != nil {
		return readable(ctx, err, "the command's output could not be read")
	}
	defer file.Close()
	changed, stop, err := d.changes.watch(name)
	if err != nil {
		return readable(ctx, err, "the command's output could not be read")
	}
	defer stop()
	again := time.NewTicker(followPatience)
	defer again.Stop()
	r := recordReader{file: file, from: from, to: to, outOfMemory: b.outOfMemorySince}
	for {
		over := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil // check before reading: nothing is written to an unlocked record
		if over {
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
		}
		if ended, err := r.deliver(); ended || err != nil {
			return err
		}
		if over {
			return to(sandbox.Record{Next: r.at, Time: time.Now(), Kind: sandbox.RecordExit, ExitCode: 128 + int(unix.SIGKILL), BoxEnded: true})
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return fault.From(ctx.Err())
		}
	}
}

// Interrupt sends SIGINT to the process group of a launched command.
func (d *Driver) Interrupt(ctx context.Context, ref, id string) error {
	_, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	record, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return readable(ctx, err, "the command could not be interrupted")
	}
	defer record.Close()
	if l, ok := readLaunched(record); ok && l.runs() {
		_ = unix.Kill(-l.pid, unix.SIGINT) // the first process group of its session; an error means that it has ended
	}
	return nil
}

// End ends a launched command.
func (d *Driver) End(ctx context.Context, ref, id string, patience time.Duration) error {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return readable(ctx, err, "the command could not be ended")
	}
	defer file.Close()
	l, ok := readLaunched(file)
	if !ok {
		return nil // it has not begun, and its stub never begins without its server
	}
	s := b.launchedCommand(l)
	switch running := l.runs(); {
	case !running && s != nil && s.group != "":
		s.kill() // kills the processes that it left
		return nil
	case !running:
		b.killSession(l)
		return nil
	case s == nil:
		awaitDeath(killTree(l.pid, processes, signalProcess))
		return nil
	}
	if patience > 0 {
		for _, pid := range s.members() {
			// Also continue it, because a stopped process does not handle SIGTERM.
			signalProcess(pid, unix.SIGTERM)
			signalProcess(pid, unix.SIGCONT)
		}
		select {
		case <-s.done:
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
	s.kill()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// outOfMemorySince reports whether the box ran out of memory since a command began in it.
func (b *box) outOfMemorySince(l launched) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.running != nil && l.pid != 0 && b.d.oomKills(b.running) > l.ooms
}

// Forget deletes a command's record.
func (d *Driver) Forget(ctx context.Context, ref, id string) error {
	_, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return readable(ctx, err, "the command's output could not be deleted")
	}
	return nil
}

// attend guards a launched command until it has ended.
func (d *Driver) attend(c *container, s *supervised) {
	c.guard(d.cgroups, s) // returns when the command has ended
	c.leave(s)
	if s.conn != nil {
		s.close()
	}
	if s.input != nil {
		s.input.Close() // ends a caller that is still writing to it
	}
	c.endAttackers(s)
}

// inheritLaunched registers the launched commands that an earlier server left running in a container.
func (b *box) inheritLaunched(c *container) error {
	records, err := os.ReadDir(filepath.Join(b.dir, "records"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range records {
		file, err := os.Open(filepath.Join(b.dir, "records", entry.Name()))
		if err != nil {
			return err
		}
		l, ok := readLaunched(file)
		file.Close()
		if !ok || !l.runs() {
			continue
		}
		process, err := follow(l.pid)
		// Check again, because another process may have got the pid before it was followed.
		if err != nil || !l.runs() {
			continue // it has ended meanwhile
		}
		s := &supervised{c: c, cgroups: b.d.cgroups, pid: l.pid, started: l.started, recorded: true, launch: entry.Name(), done: process.done}
		c.commands.mu.Lock()
		for left := range c.commands.leaving {
			if slices.Contains(left.members(), l.pid) {
				s.group = left.group
				delete(c.commands.leaving, left)
			}
		}
		c.commands.mu.Unlock()
		c.inheritSecrets(s)
		c.commands.begin(s)
		go b.d.attend(c, s)
	}
	c.dropSecrets(nil)
	return nil
}
