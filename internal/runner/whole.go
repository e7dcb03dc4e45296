package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// The text is posted before its entry, because the server adds the artifact's name to the entry. If the server fails to
// store a text for a minute, the runner drops the text: a broken file store must not hold up the log.
type wholes struct {
	dir string
	// patience is how long the door may fail to store a text.
	patience time.Duration

	mu   sync.Mutex
	size int64
	// failing is the text whose upload currently fails, and since is when that began.
	failing string
	since   time.Time
}

const (
	// maxWholes limits the size of the waiting texts, in bytes.
	maxWholes = 128 << 20
	wholeFor  = time.Minute
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

// post uploads the texts that belong to records. The error is errOver, or one that allows a retry.
func (w *wholes) post(ctx context.Context, d *door, records [][]byte) error {
	for _, record := range records {
		if !bytes.Contains(record, []byte(`"wholeBytes":`)) {
			continue
		}
		for _, id := range wholeIDs(record) {
			if err := w.postOne(ctx, d, id); err != nil {
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

func (w *wholes) postOne(ctx context.Context, d *door, id string) error {
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
	err = d.keepWhole(ctx, id, file, info.Size())
	no, isRefused := errors.AsType[refused](err)
	answered, isAnswer := errors.AsType[failedAnswer](err)
	switch {
	case isRefused:
		fmt.Fprintln(os.Stderr, "arbe-runner: a text is not kept whole:", no)
	case isAnswer && w.fails(id):
		fmt.Fprintln(os.Stderr, "arbe-runner: a text is not kept whole:", answered)
	case err != nil:
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size -= info.Size()
	_ = os.Remove(path)
	return nil
}

// fails records that the door failed to store a text, and reports whether it has failed for longer than patience.
func (w *wholes) fails(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing != id {
		w.failing, w.since = id, time.Now()
	}
	return time.Since(w.since) > w.patience
}
