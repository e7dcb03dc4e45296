package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/wait"
)

// poster posts the spool and ephemeral records. A single goroutine does it, so the door gets everything in order. While it
// uploads a full text, or pauses after an error, it still posts ephemeral records: a run that is silent for too long is lost.
type poster struct {
	door   *door
	spool  *spool
	wholes *wholes
	author string
	// over is closed when the run is over for this runner; why is the reason.
	over chan struct{}
	why  error
	once sync.Once
	// drained is closed when the door has accepted the run's report.
	drained chan struct{}
	// away means that the door did not answer the last ephemeral records. Only the posting goroutine uses it.
	away bool

	mu sync.Mutex
	// lines are the unposted lines of the answer with the id delta, starting at offset. Earlier lines were posted or
	// dropped.
	delta  string
	offset int64
	lines  []byte
	open   *entry.PiChunk
	beat   []byte
	soon   chan struct{}
}

// Times and limits of posting.
const (
	// gather is how long streamed text is collected before it is posted.
	gather = 60 * time.Millisecond
	// maxLines limits the collected text, in bytes.
	maxLines = 128 << 10
	minPause = 200 * time.Millisecond
	maxPause = 10 * time.Second
)

func newPoster(d *door, s *spool, w *wholes, author string) *poster {
	return &poster{door: d, spool: s, wholes: w, author: author, over: make(chan struct{}), drained: make(chan struct{}), soon: make(chan struct{}, 1)}
}

// run posts until the door has accepted the run's report, or the run is over.
func (p *poster) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		again, err := false, p.ephemeral(ctx)
		if err == nil {
			again, err = p.batch(ctx)
		}
		if err == nil {
			pause = minPause
		} else if !errors.Is(err, errOver) {
			fmt.Fprintln(os.Stderr, "arbe-runner:", err, "- trying again")
			again, err = true, p.during(ctx, func(ctx context.Context) error {
				wait.For(ctx, pause+rand.N(pause))
				return nil
			})
			pause = min(2*pause, maxPause)
		}
		if err != nil {
			p.fail(err)
			return
		}
		if again {
			continue
		}
		if p.spool.finished() {
			close(p.drained)
			return
		}
		p.await(ctx)
	}
}

// await waits for something to post, and then for what usually follows at once.
func (p *poster) await(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.spool.more:
	case <-p.soon:
		select {
		case <-ctx.Done():
		case <-p.spool.more:
		case <-time.After(gather):
		}
	}
}

// during runs f, posts ephemeral records meanwhile, and returns after f. The error is that of f, or errOver, for which it
// cancels the context of f.
func (p *poster) during(ctx context.Context, f func(context.Context) error) error {
	busy, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- f(busy)
	}()
	for busy.Err() == nil {
		if over := p.ephemeral(ctx); over != nil {
			cancel()
			<-done
			return over
		}
		p.await(busy) // what it wakes for at the end is posted by the caller's next step
	}
	return <-done
}

// upload is the [upload] of full texts.
func (p *poster) upload(ctx context.Context, id string, text io.Reader, size int64, within time.Duration) (away bool, err error) {
	err = p.during(ctx, func(ctx context.Context) error { return p.door.keepWhole(ctx, id, text, size, within) })
	return p.away, err
}

// batch posts the oldest records. again means that there may be more.
func (p *poster) batch(ctx context.Context) (again bool, err error) {
	records, size, err := p.spool.peek()
	if err != nil {
		fmt.Fprintln(os.Stderr, "arbe-runner:", err)
		p.spool.spoil()
		return true, nil
	}
	if len(records) == 0 {
		return false, nil
	}
	if err := p.wholes.post(ctx, p.upload, records); err != nil {
		return false, err
	}
	accepted, err := p.deliver(ctx, records)
	if err != nil {
		return false, err
	}
	if accepted < len(records) {
		size = int64(len(records[0])) + 1
	}
	p.spool.accept(accepted, size)
	return true, nil
}

// deliver posts records, and returns how many of the first are dealt with. If they are refused, it posts only the first,
// because one of them is the cause. A single one that is refused is dropped.
func (p *poster) deliver(ctx context.Context, records [][]byte) (int, error) {
	err := p.door.post(ctx, records)
	no, isRefused := errors.AsType[refused](err)
	if isRefused && len(records) > 1 {
		records = records[:1]
		err = p.door.post(ctx, records)
		no, isRefused = errors.AsType[refused](err)
	}
	if isRefused {
		if p.spool.onlyReport() {
			return 0, no // without the report nobody would learn of the end
		}
		fmt.Fprintln(os.Stderr, "arbe-runner: an entry is dropped:", no)
		err = nil
	}
	return len(records), err
}

// fail ends the run for this runner.
func (p *poster) fail(err error) {
	p.once.Do(func() {
		p.why = err
		close(p.over)
	})
}

// ephemeral posts the heartbeat and the text since the last call. While the door is away, it drops the text. It returns only
// errOver, because the next batch meets any other error, too.
func (p *poster) ephemeral(ctx context.Context) error {
	p.mu.Lock()
	p.close()
	var records [][]byte
	if p.beat != nil {
		records = append(records, p.beat)
	}
	if len(p.lines) > 0 {
		if r, err := p.door.record(p.delta, p.author, time.Now(), chunk{}.Type(), chunk{p.offset, string(p.lines)}); err == nil && !p.away {
			records = append(records, r)
		}
		p.offset += int64(len(p.lines))
	}
	p.beat, p.lines = nil, nil
	p.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	err := p.door.post(ctx, records)
	_, isRefused := errors.AsType[refused](err)
	p.away = err != nil && !isRefused
	if err != nil && !errors.Is(err, errOver) {
		fmt.Fprintln(os.Stderr, "arbe-runner: a heartbeat is lost:", err)
		err = nil
	}
	return err
}

// heartbeat posts that the run is alive.
func (p *poster) heartbeat(id string, h entry.Heartbeat) {
	r, err := p.door.record(id, p.author, time.Now(), h.Type(), h)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.beat = r
	p.mu.Unlock()
	p.nudge()
}

// chunk posts a piece of the answer whose delta has this id.
func (p *poster) chunk(id string, c entry.PiChunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != p.delta {
		p.delta, p.offset, p.lines, p.open = id, 0, nil, nil
	}
	if o := p.open; o != nil && o.Kind == c.Kind && o.Block == c.Block && o.CallID == c.CallID && len(o.Text) < 8<<10 && c.Kind != "retry" {
		o.Text += c.Text
	} else {
		p.close()
		p.open = &c
	}
	p.nudge()
}

// close ends the open piece, to which chunk appends.
func (p *poster) close() {
	if p.open == nil {
		return
	}
	line, err := json.Marshal(p.open)
	if p.open = nil; err != nil {
		return
	}
	if len(p.lines)+len(line) > maxLines {
		p.offset += int64(len(p.lines))
		p.lines = nil
	}
	p.lines = append(append(p.lines, line...), '\n')
}

func (p *poster) nudge() {
	select {
	case p.soon <- struct{}{}:
	default:
	}
}
