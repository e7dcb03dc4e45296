//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// Launched commands outlive the server that started them; see [sandbox.Launcher]. Their output is in a record, which
// process 1 of the box writes:
//
//	<Dir>/boxes/<id>/records/<command>
//
// Process 1 holds a lock on the record while it may write to it. The kernel releases the lock when process 1 ends,
// however it ends. So a record without an end and without a lock will never have an end.

var _ sandbox.Launcher = (*Driver)(nil)

// followPatience is the longest time that Follow waits before it checks whether more can come.
const followPatience = time.Second

// mostRecorded is how much of the beginning of an output is kept. It is on the server's disk, not on the box's.
const mostRecorded = 16 << 20

var validLaunch = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// recording are the files with which a command is recorded.
type recording struct {
	file    *os.File   // locked
	outputs []*os.File // one if standard output and error are merged
	input   *os.File   // the writing end of its standard input; nil if it has none. The command's attendant owns it.
	flags   byte       // the protocol's
}

// files returns the files for process 1, in its order.
func (r *recording) files() []*os.File {
	files := append([]*os.File{r.file}, r.outputs...)
	if r.input != nil {
		files = append(files, r.input)
	}
	return files
}

func (r *recording) close() {
	for _, f := range r.files() {
		if f != r.input {
			f.Close()
		}
	}
}

// descriptors returns the descriptors for process 1. It does not call a method that would make the pipes blocking.
func (r *recording) descriptors() (fds []int) {
	for _, f := range r.files() {
		raw, err := f.SyscallConn()
		if err != nil {
			continue // it is closed; process 1 refuses too few files
		}
		_ = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	return fds
}

// launched is what a record says about the process of a command.
type launched struct {
	pid     int
	started uint64 // see process.started
	ooms    int    // how often the box had been out of memory
}

// begun records the process of the command.
func (r *recording) begun(l launched) error {
	entry := make([]byte, supervisor.EntryHeader)
	for _, n := range []uint64{uint64(l.pid), l.started, uint64(l.ooms)} {
		entry = binary.LittleEndian.AppendUint64(entry, n)
	}
	supervisor.PutHeader(entry, supervisor.EntryStart, time.Now().UnixNano())
	_, err := r.file.Write(entry)
	return err
}

// readLaunched returns the process of a command. ok is false if the command did not begin.
func readLaunched(file *os.File) (l launched, ok bool) {
	text := make([]byte, supervisor.EntryHeader+24)
	if _, err := file.ReadAt(text, 0); err != nil {
		return l, false
	}
	kind, _, content, _ := supervisor.DecodeEntry(text)
	if kind != supervisor.EntryStart {
		return l, false
	}
	return decodeLaunched(content), true
}

func decodeLaunched(content []byte) launched {
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(content[8*i:]) }
	return launched{int(number(0)), number(1), int(number(2))}
}

// runs reports whether the process is running.
func (l launched) runs() bool {
	p, err := readProcess(l.pid)
	return err == nil && p.started == l.started && p.state != "Z"
}

// killSession kills what a command that has ended left in its session, where there are no control groups. The number may
// be another session's by now. If that one's first process runs, nothing of the command's session is left, because the
// kernel uses no number again that a session has. If it has ended too, at least only processes of this box are killed.
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
	for pid, p := range processes() {
		if p.session != l.pid {
			continue
		}
		if of, err := os.Readlink(pidNamespace(pid)); err == nil && of == inside {
			signalProcess(pid, unix.SIGKILL)
		}
	}
}

func pidNamespace(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }

// Launches reports whether commands can be launched. They cannot with gVisor, whose sandboxes end with their server.
func (d *Driver) Launches() bool { return !d.runtime.ownKernel }

// Launch starts a recorded command.
func (d *Driver) Launch(ctx context.Context, ref, id string, cmd sandbox.Command) error {
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return err
	}
	if err := background(cmd); err != nil {
		return err
	}
	if !d.Launches() {
		return fault.New(fault.Precondition, "gVisor's sandboxes cannot run a command that outlives the server", "run it with another runtime")
	}
	for attempt := 1; ; attempt++ {
		file, err := newRecord(name)
		if errors.Is(err, os.ErrExist) {
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
		rec := &recording{file: file}
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
		if fault.CodeOf(err) != fault.Exhausted || attempt == attempts {
			return err
		}
	}
}

// neverBegun reports whether a record belongs to a command whose server died before the command began.
func neverBegun(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return false
	}
	_, begun := readLaunched(file)
	return !begun
}

// recordEnd writes the record of a command that could not be started, in a shell's form.
func recordEnd(name, said string, code int, merged bool) error {
	file, err := newRecord(name)
	if err != nil {
		return err
	}
	rec := &recording{file: file}
	defer rec.close()
	if err := rec.begun(launched{}); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	text := append(make([]byte, supervisor.EntryHeader), said...)
	kind := byte(supervisor.EntryStderr)
	if merged {
		kind = supervisor.EntryStdout
	}
	supervisor.PutHeader(text, kind, now)
	end := binary.LittleEndian.AppendUint32(make([]byte, supervisor.EntryHeader), uint32(code)<<8)
	end = binary.LittleEndian.AppendUint64(end, uint64(len(said)))
	supervisor.PutHeader(end, supervisor.EntryExit, now)
	_, err = file.Write(append(text, end...))
	return err
}

// newRecord creates a file that is locked when it appears.
func newRecord(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_APPEND)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.Link(f.Name(), name)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *Driver) launchRecorded(ctx context.Context, b *box, cmd sandbox.Command, rec *recording) (err error) {
	var std streams
	defer func() { std.Close() }()
	defer func() {
		if err != nil && rec.input != nil {
			rec.input.Close()
		}
	}()
	if err := rec.open(cmd, &std); err != nil {
		return readable(ctx, err, "the command could not be started")
	}
	c, run, err := d.launchCommand(ctx, b, cmd, fate{background: true, record: rec}, std)
	if err == nil {
		go d.attend(c, run.(*supervised))
	}
	return err
}

// open creates the pipes of a command. std are the command's ends of them.
func (r *recording) open(cmd sandbox.Command, std *streams) (err error) {
	if cmd.Complete {
		r.flags |= supervisor.Complete
	}
	if cmd.Input {
		r.flags |= supervisor.Input
		std[0], r.input, err = os.Pipe()
	} else {
		std[0], err = os.Open(os.DevNull)
	}
	outputs := 2
	if cmd.Merged {
		r.flags |= supervisor.Merged
		outputs = 1
	}
	for i := 0; i < outputs && err == nil; i++ {
		var pair [2]int
		if err = unix.Pipe2(pair[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		r.outputs = append(r.outputs, os.NewFile(uintptr(pair[0]), "output"))
		std[i+1] = os.NewFile(uintptr(pair[1]), "output")
		err = unix.SetNonblock(pair[0], true)
	}
	if err == nil && cmd.Merged {
		std[2], err = duplicate(std[1])
	}
	return err
}

// Input opens the standard input of a launched command.
func (d *Driver) Input(ctx context.Context, ref, id string) (io.WriteCloser, error) {
	gone := fault.New(fault.Precondition, "the command's input is not open: it has ended, it has none, or it belongs to an earlier server", "run it again")
	b, name, err := d.findLaunch(ref, id)
	if err != nil {
		return nil, err
	}
	record, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, gone
	}
	if err != nil {
		return nil, readable(ctx, err, "the command's input could not be opened")
	}
	defer record.Close()
	if l, ok := readLaunched(record); ok && l.runs() {
		if s := b.launchedCommand(l); s != nil && s.input != nil {
			return &launchedInput{File: s.input, d: d, ref: ref, id: id}, nil
		}
	}
	return nil, gone
}

// launchedInput is the standard input of a launched command.
type launchedInput struct {
	*os.File
	d       *Driver
	ref, id string
}

// Close ends the input, which process 1 also holds open.
func (i *launchedInput) Close() error {
	err := i.File.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, i.d.tellOfRecord(ctx, i.ref, i.id, []byte{supervisor.Version, supervisor.EndInput}))
}

// Release releases a part of a command's record.
func (d *Driver) Release(ctx context.Context, ref, id string, position int64) error {
	return d.tellOfRecord(ctx, ref, id, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Release}, uint64(position)))
}

// tellOfRecord sends process 1 a message about the record of a command. It does nothing if the record is no longer
// written.
func (d *Driver) tellOfRecord(ctx context.Context, ref, id string, message []byte) error {
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
	// When process 1 ends, its files are closed before they are unlocked, so check again after a while.
	again := time.NewTicker(followPatience)
	defer again.Stop()
	r := recordReader{file: file, from: from, to: to, outOfMemory: b.outOfMemorySince}
	for {
		over := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil // check before reading, because nothing follows then
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
		return nil // it has not begun, and its stub does not begin without its server
	}
	s := b.launchedCommand(l)
	switch running := l.runs(); {
	case !running && s != nil && s.group != "":
		s.kill() // what it left
		return nil
	case !running:
		b.killSession(l)
		return nil
	case s == nil:
		killTree(l.pid, processes, signalProcess)
		return nil
	}
	if patience > 0 {
		for _, pid := range s.members() {
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

// launchedCommand returns a command that runs, or that left something that does, by its process; nil if it is unknown.
func (b *box) launchedCommand(l launched) *supervised {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.running == nil {
		return nil
	}
	c := &b.running.commands
	c.mu.Lock()
	defer c.mu.Unlock()
	for run := range c.waited {
		if s, ok := run.(*supervised); ok && s.recorded && s.pid == l.pid && s.started == l.started {
			return s
		}
	}
	for s := range c.leaving {
		if s.recorded && s.pid == l.pid && s.started == l.started {
			return s
		}
	}
	return nil
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

// findLaunch returns the box and the record of a launched command.
func (d *Driver) findLaunch(ref, id string) (*box, string, error) {
	b, err := d.find(ref)
	if err == nil && !validLaunch.MatchString(id) {
		err = fault.Newf(fault.Invalid, "use a-z, 0-9 and -, at most 64 characters", "%q is not a command's id", id)
	}
	if err != nil {
		return nil, "", err
	}
	return b, filepath.Join(b.dir, "records", id), nil
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
		if err != nil || !l.runs() {
			continue // it has ended meanwhile
		}
		s := &supervised{c: c, cgroups: b.d.cgroups, pid: l.pid, started: l.started, recorded: true, done: process.done}
		c.commands.mu.Lock()
		for left := range c.commands.leaving {
			if slices.Contains(left.members(), l.pid) {
				s.group = left.group
				delete(c.commands.leaving, left)
			}
		}
		c.commands.mu.Unlock()
		c.commands.begin(s)
		go b.d.attend(c, s)
	}
	return nil
}

// attend guards a launched command until it has ended.
func (d *Driver) attend(c *container, s *supervised) {
	c.guard(d.cgroups, s) // returns when the command has ended
	c.commands.leave(s)
	if s.conn != nil {
		s.close()
	}
	if s.input != nil {
		s.input.Close() // ends a caller that is still writing to it
	}
	c.endAttackers(s)
}

// recordReader delivers the entries of a record.
type recordReader struct {
	file        *os.File
	from        int64 // entries that end before it are not delivered
	to          func(sandbox.Record) error
	outOfMemory func(launched) bool // reports whether the box ran out of memory since a command began

	at     int64
	output int64 // the number of output bytes before at
	begun  launched
	text   [supervisor.MaxEntry]byte
}

// deliver delivers the existing entries, and reports whether the last one was the command's end.
func (r *recordReader) deliver() (ended bool, err error) {
	for {
		text, err := r.read()
		if err != nil {
			return false, err
		}
		whole := false
		for {
			kind, nanoseconds, content, size := supervisor.DecodeEntry(text)
			if size == 0 || kind == 0 {
				break
			}
			whole, text = true, text[size:]
			r.at += int64(size)
			if ended, err := r.entry(kind, time.Unix(0, nanoseconds), content); ended || err != nil {
				return ended, err
			}
		}
		if !whole {
			return false, nil
		}
	}
}

// read reads what is at the position. In a hole, the position moves to its end.
func (r *recordReader) read() ([]byte, error) {
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(r.file.Fd(), unix.F_OFD_SETLKW, &lock); err != nil {
		return nil, err
	}
	defer func() {
		lock.Type = unix.F_UNLCK
		_ = unix.FcntlFlock(r.file.Fd(), unix.F_OFD_SETLK, &lock)
	}()
	for {
		n, err := r.file.ReadAt(r.text[:], r.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		text := r.text[:n]
		entry := bytes.TrimLeft(text, "\x00")
		if n == 0 || len(entry) == n {
			return text, nil
		}
		if r.at += int64(n - len(entry)); len(entry) > 0 {
			continue
		}
		data, err := r.file.Seek(r.at, unix.SEEK_DATA)
		if err != nil {
			return nil, err
		}
		r.at = data
	}
}

// entry delivers one entry, and reports whether it is the last one.
func (r *recordReader) entry(kind byte, at time.Time, content []byte) (last bool, err error) {
	record := sandbox.Record{Next: r.at, Time: at}
	start := r.at - int64(supervisor.EntryHeader+len(content))
	switch {
	case kind == supervisor.EntryStart && len(content) == 24:
		r.begun = decodeLaunched(content)
		record.Kind = sandbox.RecordStart
	case kind == supervisor.EntryStdout:
		record.Kind, record.Data = sandbox.RecordStdout, content
		r.output += int64(len(content))
	case kind == supervisor.EntryStderr:
		record.Kind, record.Data = sandbox.RecordStderr, content
		r.output += int64(len(content))
	case kind == supervisor.EntryMark && len(content) == 8:
		return false, r.gap(at, start, int64(binary.LittleEndian.Uint64(content)))
	case kind == supervisor.EntryExit && len(content) == 12:
		if err := r.gap(at, start, int64(binary.LittleEndian.Uint64(content[4:]))); err != nil {
			return false, err
		}
		record.Kind = sandbox.RecordExit
		record.ExitCode = exitCodeOf(syscall.WaitStatus(binary.LittleEndian.Uint32(content)))
		record.OutOfMemory = r.outOfMemory(r.begun)
		return true, r.to(record)
	default:
		return false, nil
	}
	if record.Next <= r.from {
		return false, nil
	}
	return false, r.to(record)
}

// gap delivers a gap if less was read than was written before an entry that begins at start. What is missing before the
// position that the reader began at, it had before.
func (r *recordReader) gap(at time.Time, start, output int64) error {
	missing := output - r.output
	if r.output = output; missing <= 0 || start <= r.from {
		return nil
	}
	return r.to(sandbox.Record{Next: r.at, Time: at, Kind: sandbox.RecordGap, Dropped: missing})
}
