//go:build linux

package main

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

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
