package sandbox

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

const (
	// progressEvery is the time between two pieces of a build's live output, and progressMost the size of the largest
	// piece in bytes. If output comes faster, watchers see only its end.
	progressEvery = 100 * time.Millisecond
	progressMost  = 64 << 10
)

// progress publishes the output of a build while it runs. It is a writer that never fails and never waits for a
// watcher. It is safe for concurrent use.
type progress struct {
	publish func(offset int64, data []byte)

	mu      sync.Mutex
	pending []byte // the last bytes that are not published yet
	total   int64
	// due is set while a publication is scheduled, so that there is one timer at a time.
	due  bool
	done chan struct{} // closed by close
	// sending is held during a publication, because a slow one may overlap the next, and offsets must not go back.
	sending sync.Mutex
}

func newProgress(publish func(offset int64, data []byte)) *progress {
	return &progress{publish: publish, done: make(chan struct{})}
}

// step announces the next step of the build.
func (p *progress) step(name string) { _, _ = fmt.Fprintf(p, "==> %s\n", name) } // Write never fails

// Write adds output.
func (p *progress) Write(piece []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += int64(len(piece))
	p.pending = append(p.pending, piece...)
	if over := len(p.pending) - progressMost; over > 0 {
		p.pending = append(p.pending[:0], p.pending[over:]...)
	}
	if !p.due {
		p.due = true
		time.AfterFunc(progressEvery, p.flush)
	}
	return len(piece), nil
}

// flush publishes the pending output. When the build has ended, it publishes nothing more, because the entry holds the
// end of the output.
func (p *progress) flush() {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.mu.Lock()
	data, end := bytes.Clone(p.pending), p.total
	p.pending, p.due = p.pending[:0], false
	p.mu.Unlock()
	select {
	case <-p.done:
	default:
		p.publish(end-int64(len(data)), data)
	}
}

// close stops publishing: nothing is published after it has returned.
func (p *progress) close() {
	p.sending.Lock()
	defer p.sending.Unlock()
	close(p.done)
}
