//go:build linux

package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// The record of a launched command is a file
//
//	<Dir>/boxes/<id>/records/<command>
//
// It consists of entries in the format of package supervisor. The server writes the first entry before the command
// runs. Process 1 of the box writes the others.
//
// Process 1 holds a lock on the record while it may write to it. The kernel releases the lock when process 1 ends for
// any reason. A record with neither an end nor a lock will therefore never have an end.

// newRecord creates a record that is locked from the start. Without a lock, it would count as the record of a command
// that has ended with its box.
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

// recording has the files of a recorded command.
type recording struct {
	launch  string     // the command's id
	file    *os.File   // locked
	outputs []*os.File // one if standard output and error are merged
	input   *os.File   // the writing end of its standard input; nil if it has none. The command's attendant owns it.
	flags   byte       // flags of the protocol
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

// open creates the pipes of a command. std are the command's ends of them.
func (r *recording) open(cmd sandbox.Command, std *streams) (err error) {
	if cmd.Complete {
		r.flags |= supervisor.Complete
	}
	if cmd.Input {
		r.flags |= supervisor.Input
		if std[0], r.input, err = os.Pipe(); err == nil {
			widen(std[0].Fd())
		}
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
		if cmd.Complete {
			widen(uintptr(pair[0]))
		}
		// Only process 1's end is non-blocking, because a command would fail to write to a full pipe that does not
		// block.
		err = unix.SetNonblock(pair[0], true)
	}
	if err == nil && cmd.Merged {
		std[2], err = duplicate(std[1])
	}
	return err
}

// widen makes a pipe hold more, because a command that copies a file would otherwise change with process 1 or the server after
// every 64 KB. Process 1 reads all of it at the end of the command. An error only means that the pipe stays as it is: the kernel
// limits what the pipes of an ordinary user hold.
func widen(pipe uintptr) { _, _ = unix.FcntlInt(pipe, unix.F_SETPIPE_SZ, 1<<20) }

// launched identifies the process of a launched command. It is stored in the record.
type launched struct {
	pid     int
	started uint64 // see process.started
	ooms    int    // how often the box had run out of memory
}

// begun records the process of the command before it runs, so that a later server finds it.
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

// runs reports whether the process is running. It compares the start time, because another process may have got the
// pid.
func (l launched) runs() bool {
	p, err := readProcess(l.pid)
	return err == nil && p.started == l.started && p.state != "Z"
}

// neverBegun reports whether a record belongs to a command whose server died before the command began.
func neverBegun(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	// While it is locked, its launch may be in progress and must not be repeated.
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

// read reads the record at the position. If the position is in a hole, it moves to the end of the hole.
func (r *recordReader) read() ([]byte, error) {
	// Process 1 makes holes only while nobody has this lock. Otherwise a hole could begin in an entry that is being
	// read.
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

// gap delivers a gap if output is missing before an entry that begins at start. Missing output before the reader's
// first position is not a gap, because the reader already has it.
func (r *recordReader) gap(at time.Time, start, output int64) error {
	missing := output - r.output
	if r.output = output; missing <= 0 || start <= r.from {
		return nil
	}
	return r.to(sandbox.Record{Next: r.at, Time: at, Kind: sandbox.RecordGap, Dropped: missing})
}
