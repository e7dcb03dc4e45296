package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// spool is the queue of records that the door has not accepted yet, oldest first. It is a file, so a server that is
// away for hours costs no memory, and a killed runner loses nothing.
//
// The file has one record per line. A second file says how much of it the door has accepted.
type spool struct {
	mu   sync.Mutex
	file *os.File
	mark string
	// read is how much of the file the door has accepted, and size its total size.
	read, size int64
	// rest are records for which the disk had no space. While there are any, later records go there, too.
	rest     [][]byte
	restSize int64
	// lost counts the records since the last takeLost for which neither the disk nor rest had space.
	lost int
	// next is the index of the next entry. ended means that the run's report is among the records.
	next  int
	ended bool
	more  chan struct{}
	limit int64
}

// Limits of a spool, in bytes.
const (
	maxSpool = 256 << 20
	maxRest  = 8 << 20
	// maxBatch limits one post; a single record may be longer.
	maxBatch = 512 << 10
	maxCount = 200
)

// openSpool opens the spool in a directory, or makes one that begins with the index next. resumed means that an
// earlier runner of this run wrote it.
func openSpool(dir string, epoch int64, next int) (s *spool, resumed bool, err error) {
	name := filepath.Join(dir, "spool-"+strconv.FormatInt(epoch, 10))
	s = &spool{mark: name + ".mark", next: next, more: make(chan struct{}, 1), limit: maxSpool}
	if s.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	var mark struct {
		Read  int64 `json:"read"`
		Next  int   `json:"next"`
		Ended bool  `json:"ended"`
	}
	if text, err := os.ReadFile(s.mark); err == nil && json.Unmarshal(text, &mark) == nil {
		s.read, s.next, s.ended, resumed = mark.Read, max(mark.Next, next), mark.Ended, true
	}
	written, err := s.scan()
	if err != nil {
		return nil, false, err
	}
	resumed = resumed || written
	if err := s.file.Truncate(s.size); err != nil {
		return nil, false, err
	}
	s.read = min(s.read, s.size)
	return s, resumed, s.remember()
}

// scan reads the records that an earlier runner wrote, and reports whether there are any.
func (s *spool) scan() (any bool, err error) {
	in := bufio.NewReader(io.NewSectionReader(s.file, 0, 1<<62))
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return any, nil // a line without its end was not written completely
		} else if err != nil {
			return false, err
		}
		any = true
		s.size += int64(len(line))
		var r struct {
			ID      string `json:"id"`
			Payload struct {
				Type string `json:"type"`
			} `json:"payload"`
		}
		if json.Unmarshal(line, &r) == nil {
			s.next = max(s.next, indexOf(r.ID)+1)
			s.ended = s.ended || r.Payload.Type == (runFinished{}).Type()
		}
	}
}

// remember saves how much of the file the door has accepted.
func (s *spool) remember() error {
	text, err := json.Marshal(map[string]any{"read": s.read, "next": s.next, "ended": s.ended})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.mark+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.mark+".new", s.mark)
}

// indexOf returns the n of an [entry.RunEntryID], or of an id that begins with one; -1 if there is none.
func indexOf(id string) int {
	parts := strings.Split(id, ".")
	if len(parts) < 3 || parts[0] != "run" {
		return -1
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		return -1
	}
	return n
}

// index returns the index of the next entry. take also advances it.
func (s *spool) index() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

func (s *spool) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next - 1
}

// add appends a record. It is lost if there is no room, unless it is the last one.
func (s *spool) add(record []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || last
	line := append(bytes.ReplaceAll(record, []byte("\n"), []byte(" ")), '\n')
	defer s.wake()
	if len(s.rest) == 0 && (last || s.size-s.read+int64(len(line)) <= s.limit) {
		if _, err := s.file.WriteAt(line, s.size); err == nil {
			s.size += int64(len(line))
			return
		}
		_ = s.file.Truncate(s.size) // otherwise the next record overwrites the partial one
	}
	if last || s.restSize+int64(len(line)) <= maxRest {
		s.rest = append(s.rest, line)
		s.restSize += int64(len(line))
		return
	}
	s.lost++
}

// takeLost returns the number of records lost since the last call, once there is space again.
func (s *spool) takeLost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 || s.size-s.read > s.limit/2 {
		return 0
	}
	n := s.lost
	s.lost = 0
	return n
}

// peek returns the oldest records, as many as fit one post; none if the door has accepted all. Pass size to accept.
func (s *spool) peek() (records [][]byte, size int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == s.size {
		for _, line := range s.rest {
			if len(records) > 0 && (size+int64(len(line)) > maxBatch || len(records) == maxCount) {
				break
			}
			records = append(records, bytes.TrimSuffix(line, []byte("\n")))
			size += int64(len(line))
		}
		return records, size, nil
	}
	in := bufio.NewReaderSize(io.NewSectionReader(s.file, s.read, s.size-s.read), 64<<10)
	for len(records) < maxCount {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 || errors.Is(err, io.EOF) || len(records) > 0 && size+int64(len(line)) > maxBatch {
			break
		} else if err != nil {
			return nil, 0, err
		}
		records = append(records, bytes.TrimSuffix(line, []byte("\n")))
		size += int64(len(line))
	}
	if len(records) == 0 {
		return nil, 0, errors.New("the spool was changed by someone else")
	}
	return records, size, nil
}

// accept drops the n oldest records. size is from peek.
func (s *spool) accept(n int, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read < s.size {
		s.read += size
	} else {
		s.rest, s.restSize = s.rest[n:], s.restSize-size
	}
	_ = s.remember()                                                     // otherwise the door gets them again, and stores each once
	if s.read == s.size && s.size > 1<<20 && s.file.Truncate(0) == nil { // give the disk back
		s.read, s.size = 0, 0
		_ = s.remember()
	}
}

// spoil discards the unread rest of a file that another program has changed.
func (s *spool) spoil() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
	s.read = s.size
}

// finished reports whether the door has accepted everything, including the run's report.
func (s *spool) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && s.read == s.size && len(s.rest) == 0
}

// onlyReport reports whether only the run's report is left.
func (s *spool) onlyReport() bool {
	records, _, err := s.peek()
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.ended && len(records) == 1
}

// wake wakes the poster.
func (s *spool) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
