package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// wholes are the full texts of results and arguments that are too long for the log, until the door has accepted them.
// Each is a file with its id as its name, so it survives this process, as the spool does, and costs no memory while the door
// is away.
//
// The text is posted before its entry, because the server adds the artifact's name to the entry. If the server takes
// heartbeats but has stored no text for a minute, the runner drops the text: a broken file store must not hold up the log.
// It then tries each later text once, until the server stores one again.
type wholes struct {
	dir string
	// patience is how long the door may fail to store texts.
	patience time.Duration
	// since is when the door began to fail; zero if it stored the last text. Only the posting goroutine uses it.
	since time.Time

	mu   sync.Mutex
	size int64
}

const (
	// maxWholes limits the size of the waiting texts, in bytes.
	maxWholes = 128 << 20
	wholeFor  = time.Minute
	// onceFor limits the only upload of a text after patience has run out.
	onceFor = 10 * time.Second
)

func newWholes(dir string) *wholes {
	w := &wholes{dir: dir, patience: wholeFor}
	d, err := os.Open(dir)
	if err != nil {
		return w // there was no earlier runner of this run, or it kept nothing
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // an error only makes size too small
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			w.size += info.Size()
		}
	}
	return w
}

// keep stores the text with this id, which is a result's or [entry.CallArgumentsID], and reports whether there was room for it.
func (w *wholes) keep(id string, text []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size+int64(len(text)) > maxWholes || os.MkdirAll(w.dir, 0o700) != nil {
		return false
	}
	path := filepath.Join(w.dir, id)
	if os.WriteFile(path, text, 0o600) != nil {
		_ = os.Remove(path)
		return false
	}
	w.size += int64(len(text))
	return true
}

// upload sends a text, and fails if that takes longer than within. away means that the door answers nothing else, either.
type upload func(ctx context.Context, id string, text io.Reader, size int64, within time.Duration) (away bool, err error)

// post uploads the texts that belong to records. The error is errOver, or one that allows a retry.
func (w *wholes) post(ctx context.Context, send upload, records [][]byte) error {
	for _, record := range records {
		if !bytes.Contains(record, []byte(`"wholeBytes":`)) {
			continue
		}
		for _, id := range wholeIDs(record) {
			if err := w.postOne(ctx, send, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeIDs returns the ids of the texts that belong to a record.
func wholeIDs(record []byte) (ids []string) {
	var r struct {
		ID      string          `json:"id"`
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(record, &r) != nil || r.ID != filepath.Base(r.ID) {
		return nil
	}
	var answer entry.PiAssistant
	if json.Unmarshal(r.Payload, &answer) != nil { // it is a result
		return []string{r.ID}
	}
	for n, c := range answer.Calls() {
		if c.WholeBytes > 0 {
			ids = append(ids, entry.CallArgumentsID(r.ID, n))
		}
	}
	return ids
}

func (w *wholes) postOne(ctx context.Context, send upload, id string) error {
	path := filepath.Join(w.dir, id)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil //nolint:nilerr // the door has it, or the agent deleted it
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() { // the agent put something else in its place
		return nil //nolint:nilerr // it is not kept
	}
	since := w.since
	if since.IsZero() {
		since = time.Now()
	}
	away, err := send(ctx, id, file, info.Size(), max(w.patience-time.Since(since), onceFor))
	_, isRefused := errors.AsType[refused](err)
	switch {
	case err == nil:
		w.since = time.Time{}
	case errors.Is(err, errOver) || ctx.Err() != nil:
		return err
	case isRefused:
		fmt.Fprintln(os.Stderr, "arbe-runner: a text is not kept whole:", err)
	case away: // the text waits until the door is back
		w.since = time.Time{}
		return err
	default:
		if w.since = since; time.Since(since) < w.patience {
			return err
		}
		fmt.Fprintln(os.Stderr, "arbe-runner: a text is not kept whole:", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size -= info.Size()
	_ = os.Remove(path)
	return nil
}
