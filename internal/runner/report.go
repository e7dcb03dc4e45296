package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// maxText limits a report's error and its last lines of output, each in bytes.
const maxText = 30 << 10

// add posts a message.
func (r *run) add(p entry.Payload) {
	if n := r.spool.takeLost(); n > 0 {
		r.put(entry.RunEntryID(r.Epoch, r.spool.take()), entry.PiAssistant{Harness: r.Harness, StopReason: entry.PiError, ErrorMessage: fmt.Sprintf(
			"%d entries are not kept: the server could not be reached, and the space for them was used up", n)}, false)
	}
	original := p
	p = harness.Shorten(p)
	var id string
	switch m := p.(type) {
	case entry.PiAssistant:
		id = entry.RunEntryID(r.Epoch, r.spool.take())
		r.keepArguments(id, original.(entry.PiAssistant).Calls(), m.Content)
		r.answers++
		r.count(m.Usage)
		if m.StopReason == entry.PiToolUse {
			r.open(id, m.Calls())
			defer r.askEarly(false) // after the call
		}
		r.turn("thinking")
	case entry.PiToolResult:
		id, p = r.toolResult(m, original)
	case entry.PiCompaction:
		id = entry.RunEntryID(r.Epoch, r.spool.take())
		m.FirstKeptSeq = r.recent()
		p = m
	default:
		return
	}
	r.put(id, p, false)
}

// toolResult returns the entry of a result. Without its call, it has an id of its own.
func (r *run) toolResult(m entry.PiToolResult, original entry.Payload) (id string, _ entry.Payload) {
	if c, ok := r.calls[m.ToolCallID]; ok {
		id = c.entry
		m.ToolName = cmp.Or(m.ToolName, c.block.Name)
		delete(r.calls, m.ToolCallID)
	} else {
		id = entry.RunEntryID(r.Epoch, r.spool.take())
	}
	if n := r.keep(id, harness.Whole(original)); n > 0 {
		m.Details = &entry.PiDetails{WholeBytes: n}
	}
	return id, m
}

// keep stores the full text if the log has only a part, and returns its length; 0 if there is no such text, or no space for
// it.
func (r *run) keep(id, text string) int64 {
	if text == "" || !r.post.wholes.keep(id, r.door.redact([]byte(text))) {
		return 0
	}
	return int64(len(text))
}

// keepArguments stores the arguments of calls that are too long for the log, and marks those calls in its blocks.
func (r *run) keepArguments(id string, calls, blocks []entry.PiBlock) {
	n := 0
	for i := range blocks {
		if blocks[i].Type != entry.PiCallBlock {
			continue
		}
		if harness.IsLong(calls[n].Arguments) {
			blocks[i].WholeBytes = r.keep(entry.CallArgumentsID(id, n), string(calls[n].Arguments))
		}
		n++
	}
}

// open remembers tool calls until their results come.
func (r *run) open(id string, calls []entry.PiBlock) {
	for n, block := range calls {
		if _, twice := r.calls[block.ID]; !twice && block.ID != "" {
			r.calls[block.ID] = call{block, entry.CallResultID(id, n)}
			r.order = append(r.order, block.ID)
		}
	}
}

// recent returns the position from which an agent keeps messages next to a summary: about the last 80 kB.
func (r *run) recent() int64 {
	room := int64(80 << 10)
	first := int64(1)
	for i := len(r.sizes) - 1; i >= 0; i-- {
		if room -= r.sizes[i].bytes; room < 0 {
			break
		}
		first = r.sizes[i].seq
	}
	return first
}

func (r *run) count(u entry.PiUsage) {
	r.usage.Input += u.Input
	r.usage.Output += u.Output
	r.usage.CacheRead += u.CacheRead
	r.usage.CacheWrite += u.CacheWrite
	if u.Cost != nil {
		r.usage.CostMicros += int64(u.Cost.Total * 1e6)
	} else if u.TotalTokens > 0 {
		r.usage.CostUnknown = true
	}
}

// judge decides from the agent's output and exit how the run ended. again means that the agent completed its task, but
// must be started again for messages that it has not received.
func (r *run) judge(exit harness.Exit) (f runFinished, again bool) {
	o := r.reader.Decide(exit)
	if o.Rest != nil {
		r.add(o.Rest)
	}
	f = runFinished{RunFinished: entry.RunFinished{Outcome: entry.RunCompleted, StopReason: string(o.Stop), ExitCode: &exit.Code, Result: o.Text}}
	switch {
	case r.cancelled:
		f.Outcome = entry.RunCancelled
	case r.overtime:
		f.Outcome, f.Phase, f.Error = entry.RunFailed, entry.PhaseExecution, r.tookTooLong()
	case o.Failed != "":
		f.Outcome, f.Phase, f.Error, f.LastLines = entry.RunFailed, entry.PhaseExecution, o.Failed, exit.Stderr
	case len(r.waiting) > 0 || r.taking != nil || len(r.queue.Waiting()) > 0:
		return f, true
	}
	return f, false
}

func (r *run) tookTooLong() string {
	return fmt.Sprintf("the agent was stopped after %s, which is as long as a run may take", r.max())
}

// finish saves the tree and reports how the run ended.
func (r *run) finish(ctx context.Context, f runFinished) {
	for _, id := range r.order {
		if c, open := r.calls[id]; open {
			r.add(harness.Interrupted(c.block, r.Harness))
		}
	}
	r.phase = "saving"
	r.beat()
	f.Epoch, f.Through = r.Epoch, r.queue.Through()
	if r.usage != (entry.TurnUsage{}) {
		f.Usage = &r.usage
	}
	f.Error, f.LastLines = harness.Middle(f.Error, maxText), harness.Middle(strings.ToValidUTF8(f.LastLines, "\uFFFD"), maxText)
	f.Result = harness.Middle(f.Result, 256<<10)
	r.save(ctx, &f)
	r.put(entry.RunEntryID(r.Epoch, r.spool.take()), f, true)
}

// save saves the working tree.
func (r *run) save(ctx context.Context, f *runFinished) {
	base, _ := os.ReadFile(r.baseFile())
	done := make(chan struct{})
	var p patch
	var err error
	go func() {
		defer close(done)
		p, err = r.tree.save(ctx, string(base), filepath.Join(r.dir, fmt.Sprintf("tree-%d.patch", r.Epoch)))
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for saved := false; !saved; {
		select {
		case <-done:
			saved = true
		case <-r.inbox:
		case <-beat.C:
			r.beat()
		}
	}
	f.PatchPath, f.PatchBytes, f.PatchFiles, f.PatchSHA256, f.PatchBase, f.PatchError = p.path, p.bytes, p.files, p.sha256, p.base, p.missing
	if err != nil {
		f.notSaved(err)
	}
}

// notSaved reports why the tree was not saved. A completed run stays completed. In a tree without git there are no changes
// to save, so that is not a failure.
func (f *runFinished) notSaved(err error) {
	f.PatchError = entry.OneLine(err.Error(), 500)
	if errors.Is(err, errNoRepository) || errors.Is(err, errNoGit) {
		return
	}
	if !errors.Is(err, errNoTree) {
		f.PatchError = "the changes stay in the sandbox, because they could not be saved: " + f.PatchError
	}
	if f.Outcome == entry.RunCompleted {
		f.Phase = entry.PhaseResult
	}
}

// signalAgent sends a signal to the agent itself.
func signalAgent(pid int, signal syscall.Signal) { _ = syscall.Kill(pid, signal) }
