package command

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// spool stores a complete output: in memory as long as a result could hold it, then in a file. The file has no
// name, so nothing remains when the server dies. When the space for spools is used up, a spool keeps what it has and
// stores no more, so it holds either a complete output or its first part.
type spool struct {
	dir     string
	house   string
	space   *spoolSpace
	printed int64    // bytes written to it, stored or not
	small   []byte   // everything stored, while there is no file
	file    *os.File // nil while the output is small
	held    int64    // bytes reserved for the file
	left    int64    // how many more bytes to store
	full    bool     // the space was used up
	err     error    // the reason why it cannot be read
}

// newSpool returns a spool of a house for the first most bytes, as far as there is space.
func newSpool(dir string, most int64, house string, space *spoolSpace) *spool {
	return &spool{dir: dir, left: most, house: house, space: space}
}

func (s *spool) write(p []byte) {
	s.printed += int64(len(p))
	p = p[:min(int64(len(p)), s.left)]
	if s.err != nil || len(p) == 0 {
		return
	}
	s.left -= int64(len(p))
	if s.file == nil && len(s.small)+len(p) <= keepHead+keepTail {
		s.small = append(s.small, p...)
		return
	}
	need := int64(len(s.small) + len(p)) // small is empty once there is a file
	if !s.space.take(s.house, need) {
		s.full, s.left = true, 0
		return
	}
	s.held += need
	if s.file == nil {
		s.open()
		s.put(s.small)
		s.small = nil
	}
	s.put(p)
}

func (s *spool) open() {
	if s.err = os.MkdirAll(s.dir, 0o700); s.err == nil {
		if s.file, s.err = os.CreateTemp(s.dir, "output-*"); s.err == nil {
			s.err = os.Remove(s.file.Name())
		}
	}
}

func (s *spool) put(p []byte) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
	}
}

// reserve reserves n bytes of the space for something else that holds the output. It fails if the spool stores no more, or
// if there is no space.
func (s *spool) reserve(n int64) bool {
	if s.err != nil || s.left == 0 || !s.space.take(s.house, n) {
		return false
	}
	s.held += n
	return true
}

// skip reports that the next n bytes of the output are unknown. The spool keeps only what came before them, because it
// holds a complete output or its first part.
func (s *spool) skip(n int64) {
	s.printed += n
	s.left = 0
}

// content returns a reader of what was written, from its start.
func (s *spool) content() (io.Reader, error) {
	if s.err != nil || s.file == nil {
		return bytes.NewReader(s.small), s.err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return s.file, err
}

// close deletes the file and frees its space.
func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.space.give(s.house, s.held)
	s.held = 0
}

// spoolSpace limits the bytes of all spools on a server's disk. A house may take at most half of the free space, so that none
// takes what others need: the first house half of all space, the next one half of the rest.
type spoolSpace struct {
	mu   sync.Mutex
	left int64
	used map[string]int64 // by house; only houses that use some
}

func newSpoolSpace(size int64) *spoolSpace { return &spoolSpace{left: size, used: map[string]int64{}} }

// take reserves n bytes for a house, or none if its share has fewer.
func (r *spoolSpace) take(house string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[house]+n > r.left-n {
		return false
	}
	r.left -= n
	r.used[house] += n
	return true
}

func (r *spoolSpace) taken() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, used := range r.used {
		n += used
	}
	return n
}

func (r *spoolSpace) give(house string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
	if r.used[house] -= n; r.used[house] <= 0 {
		delete(r.used, house)
	}
}
