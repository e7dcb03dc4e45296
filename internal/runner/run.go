package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// The exit codes of the program.
const (
	// exitReported means that the door has accepted the run's report.
	exitReported = 0
	// exitUnusable means that the specification or the environment is wrong, so nothing could be reported.
	exitUnusable = 2
	// exitOver means that the run is over for this runner.
	exitOver = 3
)

// Times of a run.
const (
	beatEvery = 5 * time.Second
	// stopWithin is how long an interrupted agent has to end by itself. A cancelled run must stop within two seconds.
	stopWithin = 800 * time.Millisecond
	// settleWithin is how long an agent has to exit after it has done its work.
	settleWithin = 10 * time.Second
	// outputWithin is how long the output of an agent that has ended is read.
	outputWithin = 2 * time.Second
)

// goOn is the prompt of a run that continues without a new message.
const goOn = "Continue. The previous run of this task was interrupted or failed; go on where it left off."

// run is one run of a coding agent. One goroutine owns all of it.
type run struct {
	*setup
	door  *door
	spool *spool
	post  *poster
	tree  tree
	job   harness.Job

	// inbox receives the thread's new entries.
	inbox chan []entry.Entry
	// queue is the thread's queue at a position. waiting are messages that the runner has taken but not yet given to the
	// agent. withdrawn means that somebody cancelled a message for the agent.
	queue     *entry.Queue
	position  int64
	waiting   []string
	withdrawn bool
	// taking is the current request to the door; nil if there is none. refusedAt and lastRefused are the positions at
	// which the door refused, and refusals counts its refusals at lastRefused.
	taking                 *taking
	takings, refusals      int
	refusedAt, lastRefused int64
	session                string

	agent   *process
	reader  harness.Reader
	settled bool
	// cancelled and overtime are the reasons why the agent was stopped. stop fires when the agent must be killed.
	cancelled, overtime bool
	stop                <-chan time.Time

	phase, lastTool string
	beats           int
	// calls are the tool calls without a result, by their ids, with the entry ids of their results.
	calls map[string]call
	order []string
	// asked are the agent's open questions, by the ids of the entries that will answer them.
	asked map[string]asking
	// early are questions about calls that the agent has not written yet.
	early []harness.Ask
	// answers counts the model calls, for the ids of deltas.
	answers int
	usage   entry.TurnUsage
	sizes   []size
}

// asking is an open question.
type asking struct {
	harness.Ask
	// until is when the runner stops waiting if the server does not answer.
	until time.Time
}

// taking is a request to the door to take messages.
type taking struct {
	ids   []string
	texts []string
	read  int64
	// said receives the door's answer.
	said chan error
}

// call is a tool call whose result is still to come.
type call struct {
	block entry.PiBlock
	entry string
}

// size is the size of the message at a position.
type size struct{ seq, bytes int64 }

func (r *run) sessionFile() string { return filepath.Join(r.Session, "arbe-session") }
func (r *run) baseFile() string    { return filepath.Join(r.Session, "arbe-base") }

func (r *run) isBaseKnown() bool {
	_, err := os.Stat(r.baseFile())
	return err == nil
}

// prompt returns the taken messages as one prompt.
func (r *run) prompt() string {
	texts := r.waiting
	if r.waiting = nil; len(texts) == 0 {
		return goOn
	}
	return strings.Join(texts, "\n\n")
}

// turn sets the phase in heartbeats, and posts a changed one at once.
func (r *run) turn(phase string) {
	if len(r.asked) > 0 && r.stop == nil {
		phase = "asking"
	}
	if r.phase != phase {
		r.phase = phase
		r.beat()
	}
}

func (r *run) beat() {
	r.post.heartbeat(fmt.Sprintf("run.%d.beat.%d", r.Epoch, r.beats), entry.Heartbeat{Epoch: r.Epoch, Phase: r.phase, LastTool: r.lastTool, Through: r.queue.Through()})
	r.beats++
}

// maxRecord limits a post, in bytes. It is below the door's limit for an entry.
const maxRecord = 3 << 20

// put spools an entry.
func (r *run) put(id string, p interface{ Type() string }, last bool) {
	record, err := r.door.record(id, r.author, time.Now(), p.Type(), p)
	if err != nil || len(record) > maxRecord {
		record, err = r.door.record(id, r.author, time.Now(), p.Type(), tooLarge(p))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "arbe-runner: an entry cannot be written:", err)
		return
	}
	r.spool.add(record, last)
}

// tooLarge returns a replacement for an entry that is too large even without its long texts.
func tooLarge(p interface{ Type() string }) any {
	const note = "[this is too large to be kept]"
	switch m := p.(type) {
	case entry.PiAssistant:
		m.Content = []entry.PiBlock{entry.PiText(note)}
		if m.StopReason == entry.PiToolUse {
			m.StopReason = entry.PiStopped
		}
		return m
	case entry.PiToolResult:
		m.Content = []entry.PiBlock{entry.PiText(note)}
		return m
	}
	return p
}
