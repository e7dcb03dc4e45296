package web

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/terminal"
	"github.com/arbe-dev/arbe/web/transcript"
)

// A tty shows the terminal of a command to the tabs of one session. It reads the command's output as any client does, and
// emulates the terminal. So a tab that reloads or reconnects gets the current screen, and the services check the reader's
// right to the command at each of the tty's calls.
//
// While tabs show it, the tty is the client that is connected to the command. When they have left, the tty ends. The command
// then follows its own rule: it ends after a minute without a client, unless it is kept.

const (
	// ttyLasts is how long a tty waits for a tab that has stopped following it: a hidden tab reports every minute at least.
	ttyLasts = 3 * time.Minute
	// ttyLeft is how long a tty waits after a tab reports that its page was left. A reloaded page returns sooner.
	ttyLeft = 10 * time.Second
	// maxTTYs limits the ttys of a session.
	maxTTYs = 10
	// ttyRate limits how many bytes of output a tty reads in a second, and ttyBurst is how far it may be ahead. The command
	// waits for a slower reader.
	ttyRate, ttyBurst = 8 << 20, 20 * time.Millisecond
)

type ttyKey struct{ session, thread, command string }

// ttys holds the terminals that pages of this server show. The zero value is ready to use.
type ttys struct {
	mu   sync.Mutex
	open map[ttyKey]*tty
}

// tty is a terminal that tabs show.
type tty struct {
	id  string // for the cursors of tabs
	key ttyKey
	// ctx carries the session of its tabs. It ends when no tab has followed the tty for a while.
	ctx  context.Context
	stop context.CancelFunc
	// show runs a function that changes the screen; see [app.careful].
	show func(func())
	// sizes are the sizes that tabs ask for.
	sizes chan *arbev1.TerminalSize
	// replies are the terminal's answers to the program.
	replies chan []byte
	// written counts the bytes of output.
	written atomic.Int64

	mu      sync.Mutex
	screen  *terminal.Terminal
	changed chan struct{} // closed at the next change
	waits   string        // what the command waits for
	begun   bool          // output has arrived
	end     *ttyEnd
	tabs    int
	unused  *time.Timer
	left    time.Time // when a tab said that its page is left
	ahead   time.Time // when the limits of Write allow more output
}

// ttyEnd says why a terminal is shown no longer.
type ttyEnd struct {
	How   string `json:"how"` // "ended", "elsewhere" or "gone"
	Words string `json:"words"`
}

// find returns a tty, or nil.
func (ts *ttys) find(key ttyKey) *tty {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.open[key]
}

// join returns the tty with a key, and counts one more tab until left is called. make makes a tty if there is none, or if it
// has ended.
func (ts *ttys) join(key ttyKey, make func() *tty) (t *tty, left func(), err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t = ts.open[key]; t == nil || t.over() {
		n := 0
		for other := range ts.open {
			if other.session == key.session && other != key {
				n++
			}
		}
		if n >= maxTTYs {
			return nil, nil, fault.Newf(fault.Exhausted, "close some of them", "you have %d terminals open", n)
		}
		if ts.open == nil {
			ts.open = map[ttyKey]*tty{}
		}
		t = make()
		ts.open[key] = t
		context.AfterFunc(t.ctx, func() { ts.forget(t) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tabs++
	t.unused.Stop()
	return t, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.tabs--; t.tabs > 0 {
			return
		}
		if time.Since(t.left) < ttyLeft {
			t.unused.Reset(ttyLeft)
		} else {
			t.unused.Reset(ttyLasts)
		}
	}, nil
}

func (ts *ttys) forget(t *tty) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.open[t.key] == t {
		delete(ts.open, t.key)
	}
}

// used notes that a tab still shows the tty without following it, or that the tab's page was left.
func (t *tty) used(left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left {
		t.left = time.Now()
	}
	switch {
	case t.tabs > 0: // the tab that leaves is still connected
	case left:
		t.unused.Reset(ttyLeft)
	default:
		t.unused.Reset(ttyLasts)
	}
}

// over reports whether the tty has stopped, and ended whether it has a reason to show to its tabs.
func (t *tty) over() bool { return t.ended() || t.ctx.Err() != nil }

func (t *tty) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end != nil
}

// heard learns from the thread what the command waits for.
func (t *tty) heard(event *arbev1.TailResponse) error {
	if e := event.GetEntry(); e != nil {
		if w, ok := entry.As[entry.CommandWaiting](transcript.Entry(e)); ok && w.CommandID == t.key.command {
			t.change(func() { t.waits = w.Plain() })
		}
	}
	return nil
}

// Write shows output. It pauses, so that output stays within ttyRate and takes at most half of a processor.
func (t *tty) Write(output []byte) (int, error) {
	const most = 32 << 10
	t.written.Add(int64(len(output)))
	for rest := output; len(rest) > 0; {
		n := min(len(rest), most)
		began := time.Now()
		t.change(func() {
			t.show(func() { _, _ = t.screen.Write(rest[:n]) })
			t.begun = true
			if r := t.screen.Replies(); len(r) > 0 {
				select {
				case t.replies <- r:
				default: // the program asks faster than it reads answers
				}
			}
		})
		rest = rest[n:]
		cost := max(2*time.Since(began), time.Duration(n)*time.Second/ttyRate)
		if t.ahead = maxTime(t.ahead, began).Add(cost); time.Until(t.ahead) > ttyBurst {
			select {
			case <-time.After(time.Until(t.ahead)):
			case <-t.ctx.Done():
				return 0, t.ctx.Err()
			}
		}
	}
	return len(output), nil
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// change changes the tty and tells its tabs.
func (t *tty) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tty) size() (rows, columns int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.Size()
}

func sizeMessage(rows, columns int) *arbev1.TerminalSize {
	return &arbev1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)} //nolint:gosec // within the limits of a terminal
}

// resize gives the terminal a size, and the command too.
func (t *tty) resize(rows, columns int) {
	t.change(func() { t.show(func() { t.screen.Resize(rows, columns) }) })
	t.tell(t.size())
}

// tell gives the command a size.
func (t *tty) tell(rows, columns int) {
	select {
	case <-t.sizes: // a size that the command does not have yet
	default:
	}
	select {
	case t.sizes <- sizeMessage(rows, columns):
	default: // another tab asks at the same moment
	}
}

// ttySeen is what a tab shows of a tty.
type ttySeen struct {
	id string
	terminal.Seen
}

// String returns the cursor that a tab sends when it connects again.
func (s ttySeen) String() string { return fmt.Sprintf("%s.%d.%d", s.id, s.Main, s.Other) }

// ttyFrame is an event of a tty.
type ttyFrame struct {
	terminal.Frame
	Cursor string `json:"c"`
	// Whole reports that the tab must forget what it shows.
	Whole bool `json:"z,omitempty"`
	// Waits says what the command waits for, as long as it has printed nothing.
	Waits string  `json:"s,omitempty"`
	End   *ttyEnd `json:"end,omitempty"`
}

// frame returns what has changed for a tab, and a channel that is closed at the next change.
func (t *tty) frame(seen *ttySeen) (f ttyFrame, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen.id != t.id {
		*seen = ttySeen{id: t.id}
		f.Whole = true
	}
	f.Frame, f.End = t.screen.Frame(&seen.Seen), t.end
	if !t.begun {
		if f.Waits = t.waits; f.Waits == "" {
			f.Waits = "Starting the shell…"
		}
	}
	f.Cursor = seen.String()
	return f, t.changed
}
