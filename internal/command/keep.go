package command

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
)

const (
	// storeTimeout limits storing an output, because the result waits for it. storeTimeoutOnStop is the limit on a
	// stopping server.
	storeTimeout       = 2 * time.Minute
	storeTimeoutOnStop = 5 * time.Second
)

// spoolRoom limits the bytes of all spools on a server's disk. A house may have at most as much as remains free after it, so
// that no house takes what others need: alone half of the room, and of the rest the next one half.
type spoolRoom struct {
	mu   sync.Mutex
	left int64
	used map[string]int64 // by house; without those that use nothing
}

func newSpoolRoom(size int64) *spoolRoom { return &spoolRoom{left: size, used: map[string]int64{}} }

// take reserves n bytes for a house, or none if its share has fewer.
func (r *spoolRoom) take(house string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[house]+n > r.left-n {
		return false
	}
	r.left -= n
	r.used[house] += n
	return true
}

func (r *spoolRoom) give(house string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
	if r.used[house] -= n; r.used[house] <= 0 {
		delete(r.used, house)
	}
}

// spool stores the whole of an output: in memory as long as a result could hold it, then in a file. The file has no
// name, so nothing remains when the server dies. When the room for spools is used up, a spool keeps what it has and
// stores no more, so it holds either a whole output or its first part.
type spool struct {
	dir     string
	house   string
	room    *spoolRoom
	printed int64    // bytes written to it, stored or not
	small   []byte   // everything stored, while there is no file
	file    *os.File // nil while the output is small
	held    int64    // bytes reserved for the file
	left    int64    // how many more bytes to store
	full    bool     // the room was used up
	err     error    // why it cannot be read
}

// newSpool returns a spool of a house for the first most bytes, as far as there is room.
func newSpool(dir string, most int64, house string, room *spoolRoom) *spool {
	return &spool{dir: dir, left: most, house: house, room: room}
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
	if !s.room.take(s.house, need) {
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

// reserve reserves n bytes of the room for something else that holds the output. It fails if the spool stores no more, or
// if there is no room.
func (s *spool) reserve(n int64) bool {
	if s.err != nil || s.left == 0 || !s.room.take(s.house, n) {
		return false
	}
	s.held += n
	return true
}

// skip reports that the next n bytes of the output are unknown. The spool keeps only what came before them, because it
// holds a whole output or its first part.
func (s *spool) skip(n int64) {
	s.printed += n
	s.left = 0
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

// content returns a reader of what was written, from its start.
func (s *spool) content() (io.Reader, error) {
	if s.err != nil || s.file == nil {
		return bytes.NewReader(s.small), s.err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return s.file, err
}

// close deletes the file and frees its room.
func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.room.give(s.house, s.held)
	s.held = 0
}

// kept is an output in the blob store to which no artifact refers yet.
type kept struct {
	artifact.Upload
	artifact.Draft
	part bool // there was more output
}

// keep stores the whole of a command's output. If that fails, it logs the error, and the result has no artifact.
func (w *work) keep(ctx context.Context) *kept {
	args, s := w.job.Args, w.out.spool
	// It does not use ctx, because the output of a cancelled command or a stopping server is stored too.
	within := storeTimeout
	if jobs.Stopped(ctx) {
		within = storeTimeoutOnStop
	}
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), within)
	defer cancel()
	content, err := s.content()
	var up artifact.Upload
	if err == nil {
		up, err = w.config.Artifacts.Upload(ctx, db.Scope{House: args.House}, content)
	}
	if err != nil {
		w.notKept(ctx, err)
		return nil
	}
	if s.full {
		w.config.Logger.WarnContext(ctx, "only the first part of an output is stored: the outputs of running commands use up spool_size",
			"kept", up.Size, "printed", s.printed)
	}
	line := firstOf(strings.ToValidUTF8(w.command.Line(), "\uFFFD"), 100)
	metadata, _ := json.Marshal(map[string]any{"command": line, "output_bytes": s.printed})
	return &kept{Upload: up, part: up.Size < s.printed, Draft: artifact.Draft{
		ID: strings.ToLower(rand.Text()), Kind: artifact.Output, Label: "output of " + entry.Visible(line, func(rune) string { return " " }) + ".txt", ExternalID: args.Command,
		MIMEType: "text/plain; charset=utf-8", Thread: args.Thread, Metadata: metadata,
	}}
}

// firstOf returns the first n characters of a text's first line.
func firstOf(line string, n int) string {
	line, _, _ = strings.Cut(line, "\n")
	if utf8.RuneCountInString(line) > n {
		line = string([]rune(line)[:n]) + "…"
	}
	return line
}

var (
	// errAlreadyEnded reports that a command's result is already in the log. It rolls back the artifact, to which no
	// result would refer.
	errAlreadyEnded = errors.New("another server has written this command's result")
	// errNotKept reports that an artifact was refused, which no retry changes.
	errNotKept = errors.New("the artifact is refused")
)

func (w *work) notKept(ctx context.Context, err error) {
	w.config.Logger.WarnContext(ctx, "the whole output of a command is not stored", "error", fault.From(err).Detail())
}

// endKept is [work.end] with an artifact for the command's output, created in the same transaction and
// referred to by the result.
func (w *work) endKept(ctx context.Context) error {
	args, r, k := w.job.Args, w.ended, w.whole
	scope := db.Scope{House: args.House}
	err := w.end(ctx, func(ctx context.Context, tx pgx.Tx) error {
		made, err := w.config.Artifacts.CreateTx(ctx, tx, scope, k.Draft, &k.Upload)
		if refusal, ok := errors.AsType[*fault.Error](err); ok {
			return fmt.Errorf("%w: %s", errNotKept, refusal.Detail())
		} else if err != nil {
			return err
		}
		r.ArtifactID, r.ArtifactBytes, r.ArtifactPart = made.ID, made.Size, k.part
		entries, err := w.config.Log.AppendTx(ctx, tx, args.log(), result(args.Command, r))
		if err != nil {
			return err
		}
		if there, _ := entry.As[entry.CommandResult](entries[0]); there.ArtifactID != made.ID {
			return errAlreadyEnded
		}
		return nil
	})
	if err != nil {
		w.config.Artifacts.Discard(w.config.Jobs.Results(), scope, k.Upload)
	}
	return err
}
