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

// tooFar reports whether a record is too far ahead of its reader.
func (r *record) tooFar() bool {
	return r.complete && !r.ending && r.size >= r.limit && r.size-r.released >= supervisor.Window
}

func (r *record) closeInput() {
	if r.input >= 0 {
		unix.Close(r.input)
		r.input = -1
	}
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
