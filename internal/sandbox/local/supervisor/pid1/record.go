//go:build linux

package main

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// record is the file in which a command's output is recorded. server.mu guards its fields.
type record struct {
	fd      int   // negative if it is closed
	size    int64 // bytes written; after limit, only the last part is kept
	limit   int64
	output  uint64 // bytes of output, recorded or not
	open    int    // outputs that have not ended
	exited  bool
	outputs [2]*pipe // the second one is nil if both are one
	input   int      // the writing end of the command's input; negative if there is none

	device, inode uint64 // identify the file, because the server sends it again with another descriptor

	complete bool  // nothing is dropped before it is released
	released int64 // the position up to which it was read
	held     bool  // its outputs are not read, because too much of it is not released
	ending   bool  // the command has ended; all of its output is recorded, even if too much is not released

	marks  [2 * supervisor.Marks]int64 // positions of the last marks; the oldest is marks[marked%len]
	marked int
	hole   int64 // where the hole begins; 0 without marks
	next   int64 // the size at which the next mark is due
}

// pipe is one output of a recorded command.
type pipe struct {
	fd   int // negative if it has ended
	kind byte
	to   *record
}

// keep makes a record of the files received for it. It duplicates them, because the received ones are closed after the
// message.
func (s *server) keep(files []int, limit int64, flags byte) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := func(fd int) int {
		kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return -1
		}
		return kept
	}
	r := &record{fd: own(files[0]), limit: limit, next: limit, input: -1, complete: flags&supervisor.Complete != 0}
	var st unix.Stat_t
	if unix.Fstat(files[0], &st) == nil {
		r.device, r.inode = uint64(st.Dev), st.Ino
	}
	outputs := files[1:]
	if flags&supervisor.Input != 0 {
		last := len(outputs) - 1
		r.input, outputs = own(outputs[last]), outputs[:last]
	}
	for i, output := range outputs {
		p := &pipe{fd: own(output), kind: [...]byte{supervisor.EntryStdout, supervisor.EntryStderr}[i], to: r}
		if p.fd < 0 {
			continue // the command gets SIGPIPE
		}
		if s.watch(p.fd) != nil {
			unix.Close(p.fd)
			continue
		}
		r.open++
		r.outputs[i], s.pipes[int32(p.fd)] = p, p
	}
	return r
}

// recordOf returns the record in a file, for a command that has not ended; nil if there is none. Callers hold s.mu.
func (s *server) recordOf(fd int) *record {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil
	}
	for _, c := range s.running {
		if r := c.record; r != nil && r.device == uint64(st.Dev) && r.inode == st.Ino {
			return r
		}
	}
	return nil
}

// release records that a record was read up to a position.
func (s *server) release(fd int, position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recordOf(fd)
	if r == nil || !r.complete || position <= r.released {
		return
	}
	r.released = min(position, r.size)
	end := int64(0)
	for i := max(r.marked-len(r.marks), 0); i < r.marked; i++ {
		if at := r.marks[i%len(r.marks)]; at <= r.released {
			end = at
		}
	}
	if end > r.hole {
		r.punch(end)
	}
	if !r.tooFar() {
		s.resume(r)
	}
}

// extend raises the limit of a record. It does nothing after the first mark, because holes begin there.
func (s *server) extend(fd int, limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recordOf(fd)
	if r == nil || !r.complete || r.marked > 0 || limit <= r.limit {
		return
	}
	r.limit, r.next = limit, limit
	if !r.tooFar() {
		s.resume(r)
	}
}

// tooFar reports whether a record is too far ahead of its reader.
func (r *record) tooFar() bool {
	return r.complete && !r.ending && r.size >= r.limit && r.size-r.released >= supervisor.Window
}

// hold stops reading a command's outputs, so that the command waits when its pipes are full.
func (s *server) hold(r *record) {
	r.held = true
	for _, p := range r.outputs {
		if p != nil && p.fd >= 0 {
			_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, p.fd, nil)
		}
	}
}

// resume resumes reading a command's outputs.
func (s *server) resume(r *record) {
	if !r.held {
		return
	}
	r.held = false
	for _, p := range r.outputs {
		if p != nil && p.fd >= 0 && s.watch(p.fd) != nil {
			s.closePipe(p) // the command gets SIGPIPE
		}
	}
}

func (s *server) closePipe(p *pipe) {
	delete(s.pipes, int32(p.fd))
	unix.Close(p.fd)
	p.fd = -1
	p.to.open--
	p.to.close()
}

// endInput ends the input of the command whose record is in a file.
func (s *server) endInput(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.recordOf(fd); r != nil {
		r.closeInput()
	}
}

// reopen answers with the input of the command whose record is in a file.
func (s *server) reopen(c *conn, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.recordOf(fd); r != nil && r.input >= 0 {
		c.send(supervisor.Reopened, 0, r.input)
	} else {
		c.send(supervisor.Failed, uint32(unix.ENOENT), -1)
	}
}

func (r *record) closeInput() {
	if r.input >= 0 {
		unix.Close(r.input)
		r.input = -1
	}
}

// dropIfNotStarted drops the record of a command that was not started.
func (s *server) dropIfNotStarted(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.record
	if c.pid != 0 || r.exited {
		return
	}
	for _, p := range r.outputs {
		if p != nil && p.fd >= 0 {
			delete(s.pipes, int32(p.fd))
			unix.Close(p.fd)
			p.fd = -1
		}
	}
	r.open, r.exited, c.record = 0, true, nil
	r.closeInput()
	r.close()
}

// write moves the content of a pipe to its record, and reports whether there may be more. Callers hold s.mu.
func (s *server) write(p *pipe) bool {
	if p == nil || p.fd < 0 {
		return false
	}
	r := p.to
	if r.tooFar() {
		s.hold(r)
		return false
	}
	if s.entry == nil {
		s.entry = make([]byte, supervisor.MaxEntry)
	}
	n, err := unix.Read(p.fd, s.entry[supervisor.EntryHeader:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return err == unix.EINTR
	}
	if err != nil || n == 0 {
		s.closePipe(p)
		return false
	}
	if r.exited { // output of background processes is read and dropped, because they would otherwise wait or get SIGPIPE
		return true
	}
	if r.size >= r.next {
		r.mark()
	}
	r.add(s.entry[:supervisor.EntryHeader+n], p.kind)
	r.output += uint64(n)
	return true
}

// mark writes a mark, and makes a hole of entries that are too old.
func (r *record) mark() {
	entry := binary.LittleEndian.AppendUint64(make([]byte, supervisor.EntryHeader, supervisor.EntryHeader+8), r.output)
	at := r.size
	if !r.add(entry, supervisor.EntryMark) {
		return
	}
	r.next = r.size + supervisor.MarkEvery
	if r.marked == 0 {
		r.hole = at
	}
	if r.marked >= supervisor.Marks && !r.complete {
		r.punch(r.marks[(r.marked-supervisor.Marks)%len(r.marks)])
	}
	r.marks[r.marked%len(r.marks)] = at
	r.marked++
}

// punch makes a hole that ends at a mark. It does not wait for the lock, because the outputs of all commands would wait
// too. Space that cannot be released now is released with the next mark.
func (r *record) punch(end int64) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(uintptr(r.fd), unix.F_OFD_SETLK, &lock) != nil {
		return
	}
	_ = unix.Fallocate(r.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, r.hole, end-r.hole)
	lock = unix.Flock_t{Type: unix.F_UNLCK}
	_ = unix.FcntlFlock(uintptr(r.fd), unix.F_OFD_SETLK, &lock)
}

// add writes one entry completely or not at all.
func (r *record) add(entry []byte, kind byte) bool {
	if r.size == 0 { // the server has written the first entry by now
		var st unix.Stat_t
		if unix.Fstat(r.fd, &st) != nil {
			return false
		}
		r.size = st.Size
	}
	supervisor.PutHeader(entry, kind, time.Now().UnixNano())
	n, err := unix.Write(r.fd, entry)
	if err != nil || n < len(entry) { // the host's disk is full, and an incomplete entry must not be before later ones
		_ = unix.Ftruncate(r.fd, r.size)
		return false
	}
	r.size += int64(n)
	return true
}

// finish records that the command has ended, after its output. Callers hold s.mu.
func (s *server) finish(r *record, status uint32) {
	if r == nil {
		return
	}
	r.closeInput()
	r.ending = true
	s.resume(r)
	// A pipe holds less than this many reads can take. The number is limited, because background processes may write
	// forever.
	for _, p := range r.outputs {
		for range 32 {
			if !s.write(p) {
				break
			}
		}
	}
	entry := make([]byte, supervisor.EntryHeader, supervisor.EntryHeader+12)
	entry = binary.LittleEndian.AppendUint32(entry, status)
	entry = binary.LittleEndian.AppendUint64(entry, r.output)
	r.add(entry, supervisor.EntryExit)
	r.exited = true
}

// duplicate duplicates the record's file, which the caller must close; negative if there is none.
func (r *record) duplicate() int {
	if r == nil || r.fd < 0 {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1
	}
	return fd
}

// close closes the record when nothing more will be written to it.
func (r *record) close() {
	if r != nil && r.exited && r.open == 0 && r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}
