//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// The record of a command is a directory:
//
//	lock            locked while the process that stays with the command runs
//	begun           how it began; it is there before the command runs
//	out-<offset>    a piece of its output that begins at this byte of it, in hexadecimal
//	ended           how it ended; it follows all output of the record
//	control         the socket of the process that stays with it
//
// A piece is a list of entries: 'o' or 'e' for standard output or error, the length (uint32), the time (int64, nanoseconds
// since 1970), and the bytes. An incomplete entry is still being written.
const (
	lockFile    = "lock"
	begunFile   = "begun"
	endedFile   = "ended"
	controlFile = "control"
	piecePrefix = "out-"

	entryHeader = 1 + 4 + 8
	// pieceSize is the size at which a new piece is started.
	pieceSize = 1 << 20
	// keptSize is how much of a record's beginning is always kept, and keptPieces how many of its last pieces are kept
	// besides.
	keptSize, keptPieces = 16 << 20, 8
	// mostAhead limits how far the writing of a Complete record may be ahead of its reading.
	mostAhead = keptPieces * pieceSize
)

type begun struct {
	Nanoseconds int64 `json:"time"`
	OOMKills    int   `json:"oom_kills"`
}

type ended struct {
	Nanoseconds int64 `json:"time"`
	Output      int64 `json:"output"` // bytes, recorded or not
	ExitCode    int   `json:"exit_code"`
	OutOfMemory bool  `json:"oom"`
}

// recordOf returns the directory of a command's record.
func recordOf(id string) string { return filepath.Join(protocol.Records, filepath.Base(id)) }

// recorder writes the output of a command. It is safe for concurrent use.
type recorder struct {
	dir      string
	complete bool

	mu       sync.Mutex
	freed    *sync.Cond
	file     *os.File // the piece being written, if any
	pieces   []piece  // the last one is written to file, if that is open
	total    int64    // bytes of all pieces
	output   int64    // bytes of output, recorded or not
	limit    int64
	released int64 // bytes of output that were read
	removed  bool  // whether a piece was removed
	ending   bool  // the command has ended: its remaining output is recorded even if nothing is released
}

// piece is a piece of a record.
type piece struct {
	start, end int64 // its range of output, in bytes
	size       int64
	spare      bool // beyond the limit; may be removed
}

func newRecorder(dir string, complete bool) *recorder {
	r := &recorder{dir: dir, complete: complete, limit: keptSize}
	r.freed = sync.NewCond(&r.mu)
	return r
}

// write records a piece of output. For a Complete command, it waits while too much output is unreleased.
func (r *recorder) write(kind byte, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.tooFar() {
		r.freed.Wait()
	}
	if r.file != nil && r.pieces[len(r.pieces)-1].size >= pieceSize {
		r.finishPiece()
	}
	entry := make([]byte, entryHeader, entryHeader+len(data))
	entry[0] = kind
	binary.LittleEndian.PutUint32(entry[1:], uint32(len(data)))
	binary.LittleEndian.PutUint64(entry[5:], uint64(time.Now().UnixNano()))
	err := r.openPiece()
	if err == nil {
		_, err = r.file.Write(append(entry, data...))
	}
	r.output += int64(len(data))
	if err != nil { // the disk is full, or the record was forgotten: carry on, so that a reader sees a gap
		r.finishPiece()
		return
	}
	p := &r.pieces[len(r.pieces)-1]
	p.end, p.size = r.output, p.size+int64(len(entry)+len(data))
	r.total += int64(len(entry) + len(data))
}

func (r *recorder) openPiece() (err error) {
	if r.file != nil {
		return nil
	}
	r.file, err = os.OpenFile(pieceName(r.dir, r.output), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		r.file = nil
		return err
	}
	r.pieces = append(r.pieces, piece{start: r.output, end: r.output, spare: r.total >= r.limit})
	r.trim()
	return nil
}

func (r *recorder) finishPiece() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// trim removes surplus pieces.
func (r *recorder) trim() {
	spare := 0
	for _, p := range r.pieces {
		if p.spare {
			spare++
		}
	}
	last := len(r.pieces) - 1
	kept := r.pieces[:0]
	for i, p := range r.pieces {
		over := p.spare && i < last && (!r.complete && spare > keptPieces || r.complete && p.end <= r.released)
		if !over {
			kept = append(kept, p)
			continue
		}
		spare--
		r.removed = true
		_ = os.Remove(pieceName(r.dir, p.start)) // fails if the record was forgotten
	}
	r.pieces = kept
}

// tooFar reports whether writing is too far ahead of reading.
func (r *recorder) tooFar() bool {
	if !r.complete || r.ending || r.total < r.limit {
		return false
	}
	ahead := int64(0)
	for _, p := range r.pieces {
		if p.spare && p.end > r.released {
			ahead += p.size
		}
	}
	return ahead >= mostAhead
}

// release marks the output before a position as read.
func (r *recorder) release(position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if read := min(position-1, r.output); r.complete && read > r.released {
		r.released = read
		r.trim()
		r.freed.Broadcast()
	}
}

// extend raises the limit. It has no effect once a piece was removed, because the record is incomplete then.
func (r *recorder) extend(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complete && !r.removed && limit > r.limit {
		r.limit = limit
		for i := range r.pieces {
			r.pieces[i].spare = false
		}
		r.freed.Broadcast()
	}
}

// finish marks the command as ended, so that nothing waits for a reader any more.
func (r *recorder) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
	r.freed.Broadcast()
}

// end records how the command ended.
func (r *recorder) end(code int, outOfMemory bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishPiece()
	return writeJSON(filepath.Join(r.dir, endedFile), ended{time.Now().UnixNano(), r.output, code, outOfMemory})
}

func pieceName(dir string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%016x", piecePrefix, start))
}

// listPieces returns the offsets at which the pieces of a record begin, in order.
func listPieces(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	var starts []int64
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), piecePrefix); ok {
			if start, err := strconv.ParseInt(text, 16, 64); err == nil {
				starts = append(starts, start)
			}
		}
	}
	slices.Sort(starts)
	return starts, err
}

// reading collects the record of a command from a position on.
type reading struct {
	dir   string
	from  int64 // the next byte of output
	most  int
	reply protocol.Reply
}

// mergeWithin is the period within which pieces of one output are merged into one record of at most mergeSize bytes.
const mergeWithin, mergeSize = 100 * time.Millisecond, 64 << 10

// collect reads the available output, as far as it fits into the reply.
func (r *reading) collect() error {
	for len(r.reply.Data) < r.most {
		starts, err := listPieces(r.dir)
		if err != nil {
			return err
		}
		// Read the last piece that begins at or before the position. If there is none, the next piece follows a gap.
		i, exact := slices.BinarySearch(starts, r.from)
		if !exact {
			i--
		}
		at := r.from
		if i >= 0 {
			err := r.readPiece(starts[i])
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was removed in the meantime
			}
			if err != nil {
				return err
			}
		}
		if r.from > at {
			continue
		}
		if i+1 >= len(starts) {
			return nil
		}
		// A later piece means that this one is finished. It may have grown since it was read, so read it again.
		if i >= 0 {
			if err := r.readPiece(starts[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if r.from > at {
				continue
			}
		}
		r.gap(starts[i+1], time.Now().UnixNano())
	}
	return nil
}

// gap delivers a gap up to an offset.
func (r *reading) gap(to, nanoseconds int64) {
	if to > r.from {
		r.reply.Records = append(r.reply.Records, protocol.Record{Kind: "gap", Next: to + 1, Nanoseconds: nanoseconds, Dropped: to - r.from})
		r.from = to
	}
}

// readPiece reads a piece from the position on.
func (r *reading) readPiece(start int64) error {
	file, err := os.Open(pieceName(r.dir, start))
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	at := start
	for len(text) >= entryHeader && len(r.reply.Data) < r.most {
		size := int64(binary.LittleEndian.Uint32(text[1:]))
		if size > int64(len(text)-entryHeader) {
			return nil
		}
		data := text[entryHeader : entryHeader+size]
		if at+size > r.from {
			r.output(text[0], int64(binary.LittleEndian.Uint64(text[5:])), data[max(0, r.from-at):])
		}
		at, text = at+size, text[entryHeader+size:]
	}
	return nil
}

// output delivers output.
func (r *reading) output(kind byte, nanoseconds int64, data []byte) {
	name := "stdout"
	if kind == 'e' {
		name = "stderr"
	}
	r.from += int64(len(data))
	r.reply.Data = append(r.reply.Data, data...)
	if n := len(r.reply.Records); n > 0 {
		last := &r.reply.Records[n-1]
		if last.Kind == name && last.Size+len(data) <= mergeSize && nanoseconds-last.Nanoseconds < int64(mergeWithin) {
			last.Size, last.Next = last.Size+len(data), r.from+1
			return
		}
	}
	r.reply.Records = append(r.reply.Records, protocol.Record{Kind: name, Next: r.from + 1, Nanoseconds: nanoseconds, Size: len(data)})
}

// settle is how long a reply waits for more output after the first, so that a quick command needs one reply.
const settle = 20 * time.Millisecond

// follow returns the record of a command from a position on, waiting until there is some.
func follow(r protocol.Request) protocol.Reply {
	dir := recordOf(r.ID)
	var start begun
	if err := decodeJSON(filepath.Join(dir, begunFile), &start); err != nil {
		return protocol.Reply{Reason: protocol.Unknown, Detail: err.Error()}
	}
	read := &reading{dir: dir, from: max(r.Position-1, 0), most: r.Most}
	if r.Position < 1 {
		read.reply.Records = append(read.reply.Records, protocol.Record{Kind: "start", Next: 1, Nanoseconds: start.Nanoseconds})
	}
	changes := watch(dir)
	defer changes.close()
	deadline := time.Now().Add(r.Wait)
	for {
		// Check both before reading, because no output follows then.
		over := !locked(dir)
		var end ended
		hasEnded := decodeJSON(filepath.Join(dir, endedFile), &end) == nil
		before := len(read.reply.Data)
		if err := read.collect(); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return protocol.Reply{Reason: protocol.Unknown, Detail: err.Error()}
			}
			return failed(err)
		}
		switch {
		case len(read.reply.Data) >= read.most:
			return read.reply
		case hasEnded:
			read.gap(end.Output, end.Nanoseconds)
			read.reply.Records = append(read.reply.Records, protocol.Record{
				Kind: "exit", Next: end.Output + 2, Nanoseconds: end.Nanoseconds, ExitCode: end.ExitCode, OutOfMemory: end.OutOfMemory,
			})
			return read.reply
		case over:
			read.reply.Records = append(read.reply.Records, protocol.Record{
				Kind: "exit", Next: read.from + 2, Nanoseconds: time.Now().UnixNano(), ExitCode: 128 + int(syscall.SIGKILL), BoxEnded: true,
			})
			return read.reply
		}
		if len(read.reply.Records) > 0 && before == 0 {
			if soon := time.Now().Add(settle); soon.Before(deadline) {
				deadline = soon
			}
		}
		left := time.Until(deadline)
		if left <= 0 {
			return read.reply
		}
		changes.wait(min(left, time.Second)) // a lock's release sends no notification
	}
}

// locked reports whether the process that stays with the command is running.
func locked(dir string) bool { return isLocked(filepath.Join(dir, lockFile)) }

// isLocked reports whether another process has locked a file.
func isLocked(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}

// watcher waits for changes in a directory.
type watcher struct{ file *os.File }

// watch watches a directory. Where that is impossible, waiting means a short pause.
func watch(dir string) watcher {
	return watchFor(syscall.IN_MODIFY|syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_DELETE_SELF, dir)
}

// watchFor watches a directory for some events.
func watchFor(events uint32, dir string) watcher {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return watcher{}
	}
	if _, err := syscall.InotifyAddWatch(fd, dir, events); err != nil {
		syscall.Close(fd)
		return watcher{}
	}
	return watcher{os.NewFile(uintptr(fd), "inotify")}
}

func (w watcher) wait(limit time.Duration) {
	if w.file == nil {
		time.Sleep(min(limit, 20*time.Millisecond))
		return
	}
	if w.file.SetReadDeadline(time.Now().Add(limit)) != nil {
		time.Sleep(min(limit, 20*time.Millisecond))
		return
	}
	var events [4096]byte
	_, _ = w.file.Read(events[:]) // an event or the deadline: look again in either case
}

func (w watcher) close() {
	if w.file != nil {
		w.file.Close()
	}
}

// forget deletes a record.
func forget(id string) protocol.Reply {
	_ = os.Remove(holdingOf(id)) // most commands hold no secrets
	gone := filepath.Join(protocol.Records, fmt.Sprintf(".gone-%d-%d", os.Getpid(), time.Now().UnixNano()))
	err := os.Rename(recordOf(id), gone) // rename first, so that the id is free at once
	if err == nil {
		err = os.RemoveAll(gone)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	return protocol.Reply{}
}
