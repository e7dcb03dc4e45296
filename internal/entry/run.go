package entry

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A run is one pass of the coding agent that drives a thread: idle → running → completed, failed or cancelled. It is
// identified by its thread and its epoch, which counts the runs of the thread from 1. A [StatusChanged] begins it and another
// one ends it. What the agent says and does are [PiAssistant] and [PiToolResult] entries of the bot, which its runner posts.
//
// The entries in this file say who asked for a run and how it went: the runner's own report ([Heartbeat], [RunFinished]),
// what arbe found out without it ([PiFailed], [SessionOrphaned]), and what the thread above is told ([AgentSpawn],
// [ChildFinished]).

// RunPrefix begins the ids of the entries of runs. Only a runner, and arbe itself, may write entries with such ids, because a
// log stores one entry per id: the run's own could then never be written.
const RunPrefix = "run."

// RunID returns the id of the [RunWork] of a run: "run.3". It is empty for 0, which is no run's.
func RunID(epoch int64) string {
	if epoch == 0 {
		return ""
	}
	return RunPrefix + strconv.FormatInt(epoch, 10)
}

// RunEntryID returns the id of the n-th entry that a run writes. The result of a tool call has the id that [CallResultID]
// makes from the one of its step.
func RunEntryID(epoch int64, n int) string { return RunID(epoch) + "." + strconv.Itoa(n) }

// RunEndID returns the id of the [RunFinished], [PiFailed] or [SessionOrphaned] that arbe writes for a run.
func RunEndID(epoch int64) string { return RunID(epoch) + ".end" }

// RunOf returns the [RunID] of the run that wrote an entry, or a delta, with this id; empty if no run did.
func RunOf(id string) string {
	rest, ok := strings.CutPrefix(id, RunPrefix)
	if !ok {
		return ""
	}
	epoch, _, more := strings.Cut(rest, ".")
	if n, err := strconv.ParseInt(epoch, 10, 64); err != nil || n < 1 || !more || RunID(n) != RunPrefix+epoch {
		return ""
	}
	return RunPrefix + epoch
}

// BeatID returns the id of the deltas that are the later heartbeats of a run. Each is one line of JSON: a [Heartbeat].
func BeatID(epoch int64) string { return RunID(epoch) + ".beat" }

// BeatOf returns the [RunID] of the run whose heartbeats have this id; ok is false for deltas of something else.
func BeatOf(id string) (run string, ok bool) {
	run, ok = strings.CutSuffix(id, ".beat")
	return run, ok && RunOf(id) == run
}

// BootID returns the id of the deltas that say what is put in place for a run before it begins: the steps, each a line that
// begins with "==> ", and what they print.
func BootID(epoch int64) string { return RunID(epoch) + ".boot" }

// BootOf returns the [RunID] of the run that is prepared by deltas with this id; ok is false for deltas of something else.
func BootOf(id string) (run string, ok bool) {
	run, ok = strings.CutSuffix(id, ".boot")
	return run, ok && RunOf(id) == run
}

// BootSteps returns the steps that begin in a piece of output of deltas with a [BootID].
func BootSteps(output []byte) (steps []string) {
	for line := range strings.Lines(string(output)) {
		if step, is := strings.CutPrefix(line, "==> "); is {
			steps = append(steps, OneLine(step, 200))
		}
	}
	return steps
}

// AnswerOf returns what wrote an entry, or a delta, with this id: the id of a bot's turn, or the [RunID] of a run; empty if
// neither did.
func AnswerOf(id string) string { return cmp.Or(TurnOf(id), RunOf(id)) }

// AnswerWork returns the work of what [AnswerOf] returns: a bot's turn, or a run.
func AnswerWork(answer string) Work {
	if strings.HasPrefix(answer, RunPrefix) {
		return Work{RunWork, answer}
	}
	return Work{TurnWork, answer}
}

// The outcomes of a run.
const (
	RunCompleted = "completed"
	RunFailed    = "failed"
	RunCancelled = "cancelled"
)

// The phases in which a run can fail.
const (
	// PhaseDispatch: before the agent began. Its sandbox, its program or its start failed.
	PhaseDispatch = "dispatch"
	// PhaseExecution: while the agent worked.
	PhaseExecution = "execution"
	// PhaseObservation: the agent, or its machine, is gone, and nobody saw how it ended.
	PhaseObservation = "observation"
	// PhaseResult: the agent has ended, and its result could not be taken.
	PhaseResult = "result-collection"
)

var phases = []string{"", PhaseDispatch, PhaseExecution, PhaseObservation, PhaseResult}

// MaxTask is the longest task that can be delegated, in bytes.
const MaxTask = 256 << 10

// maxRunText limits an error, a reason or the last lines of an output in an entry of a run, in bytes.
const maxRunText = 32 << 10

// RunSummary says which run a chat is the result of.
type RunSummary struct {
	ThreadID string `json:"thread_id"`
	Epoch    int64  `json:"epoch"`
	// Outcome is "completed", "failed" or "cancelled".
	Outcome string `json:"outcome"`
	// Runtime is the coding agent.
	Runtime string `json:"runtime"`
}

// AgentSpawn records that a task was delegated to a coding agent, in the thread in which somebody asked for it. Its author is
// who asked.
type AgentSpawn struct {
	ChildThreadID string `json:"child_thread_id"`
	// AgentID is the bot that drives the child, and Runtime its coding agent.
	AgentID string `json:"agent_id"`
	Runtime string `json:"runtime"`
	// Task is the beginning of the task. All of it is the first chat of the child.
	Task string `json:"task"`
}

func (AgentSpawn) Type() string { return "agent_spawn" }

func (s AgentSpawn) parts(Entry) []Part { return []Part{{Work{ChildWork, s.ChildThreadID}, Opens}} }

func (s AgentSpawn) agents() []string { return []string{s.AgentID} }

func (s AgentSpawn) Validate() error {
	if s.ChildThreadID == "" || s.AgentID == "" {
		return fault.New(fault.Invalid, "child_thread_id, agent_id: one is empty", "give the thread and the bot")
	}
	return nil
}

func (s AgentSpawn) Plain() string {
	return fmt.Sprintf("delegated to %s in thread %s: %s", s.Runtime, s.ChildThreadID, s.Task)
}

// Heartbeat says that a run is alive. The log has the first one of each run; later ones reach only those who watch.
type Heartbeat struct {
	Epoch int64 `json:"epoch"`
	// Phase is what the agent does, in a word: "starting", "thinking", "tool", "waiting", "asking", "saving".
	Phase string `json:"phase"`
	// LastTool is the tool that it called last; empty if it has called none.
	LastTool string `json:"last_tool,omitempty"`
	// Through is the position of the last chat that was given to the agent; 0 if the runner does not say.
	Through int64 `json:"through,omitempty"`
}

func (Heartbeat) Type() string { return "signal.thread.heartbeat" }

func (h Heartbeat) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(h.Epoch)}, Updates}} }

func (h Heartbeat) Validate() error {
	switch {
	case h.Epoch < 1:
		return noEpoch()
	case len(h.Phase) > 100 || len(h.LastTool) > 200:
		return fault.New(fault.Invalid, "phase, last_tool: one is too long", "use a few words")
	case h.Through < 0:
		return fault.New(fault.Invalid, "through: it is negative", "give the position of an entry")
	}
	return nil
}

// Doing says in a few words what the agent does: "thinking", "running bash".
func (h Heartbeat) Doing() string {
	switch h.Phase {
	case "tool":
		return "running " + cmp.Or(h.LastTool, "a tool")
	case "asking":
		return "waiting for a person's answer"
	case "saving":
		return "saving its changes"
	}
	return cmp.Or(h.Phase, "at work")
}

func (h Heartbeat) Plain() string {
	if h.LastTool != "" {
		return "the agent is alive: " + cmp.Or(h.Phase, "at work") + ", last tool " + h.LastTool
	}
	return "the agent is alive: " + cmp.Or(h.Phase, "at work")
}

// RunFinished is the report with which a runner ends its run. The thread's status changes in the same transaction.
type RunFinished struct {
	Epoch int64 `json:"epoch"`
	// Outcome is "completed", "failed" or "cancelled".
	Outcome string `json:"outcome"`
	// StopReason is why the agent's last answer ended, and ExitCode how its program did; nil if it did not exit.
	StopReason string `json:"stop_reason,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	// Error says what went wrong, and Phase when: one of the phases; empty if nothing did.
	Error string `json:"error,omitempty"`
	Phase string `json:"phase,omitempty"`
	// LastLines are the last lines of what the agent's program printed, if it failed.
	LastLines string `json:"last_lines,omitempty"`
	// Usage is what the run's model calls used, as the agent counted it; nil if it did not.
	Usage *TurnUsage `json:"usage,omitempty"`
	// Result is the last text of the agent.
	Result string `json:"result,omitempty"`
	// Through is as in [Heartbeat].
	Through int64 `json:"through,omitempty"`
	// PatchPath is the file of the sandbox that has the changes of the working tree, and PatchArtifactID the artifact that
	// keeps it.
	PatchPath       string `json:"patch_path,omitempty"`
	PatchArtifactID string `json:"patch_artifact_id,omitempty"`
	// PatchBytes, PatchFiles and PatchSHA256 describe that file. PatchBase is the commit that it applies to, and PatchError says
	// why there is none, or what it lacks.
	PatchBytes  int64  `json:"patch_bytes,omitempty"`
	PatchFiles  int    `json:"patch_files,omitempty"`
	PatchSHA256 string `json:"patch_sha256,omitempty"`
	PatchBase   string `json:"patch_base,omitempty"`
	PatchError  string `json:"patch_error,omitempty"`
}

func (RunFinished) Type() string { return "signal.thread.run_finished" }

func (f RunFinished) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(f.Epoch)}, Updates}} }

func (f RunFinished) Validate() error {
	switch {
	case f.Epoch < 1:
		return noEpoch()
	case f.Outcome != RunCompleted && f.Outcome != RunFailed && f.Outcome != RunCancelled:
		return fault.Newf(fault.Invalid, "use completed, failed or cancelled", "outcome: there is no outcome %.40q", f.Outcome)
	case !slices.Contains(phases, f.Phase):
		return fault.Newf(fault.Invalid, "use dispatch, execution, observation or result-collection", "phase: there is no phase %.40q", f.Phase)
	case len(f.Error) > maxRunText || len(f.LastLines) > maxRunText || len(f.PatchError) > maxRunText || len(f.StopReason) > 200 || len(f.PatchPath) > 4096:
		return fault.Newf(fault.Exhausted, "shorten them", "error, last_lines, stop_reason, patch_path: one is too long; an error may have %d bytes", maxRunText).WithReason(fault.TooLarge)
	case len(f.Result) > MaxText:
		return fault.Newf(fault.Exhausted, "shorten it", "result: it may have at most %d bytes, and this has %d", MaxText, len(f.Result)).WithReason(fault.TooLarge)
	case f.Through < 0:
		return fault.New(fault.Invalid, "through: it is negative", "give the position of an entry")
	}
	return nil
}

func (f RunFinished) Plain() string {
	text := "run " + strconv.FormatInt(f.Epoch, 10) + " " + f.Outcome
	if f.Error != "" {
		text += ": " + f.Error
	}
	return text
}

// PiFailed says why a run failed, whatever its coding agent. It comes with the [StatusChanged] to failed.
type PiFailed struct {
	Epoch int64 `json:"epoch"`
	// Error says what went wrong, and Next what to do about it.
	Error string `json:"error"`
	Next  string `json:"next,omitempty"`
	// ExitCode is how the agent's program ended; nil if it did not.
	ExitCode *int `json:"exit_code,omitempty"`
	// Phase is the phase in which it failed.
	Phase string `json:"phase"`
	// LastLines are the last lines of what the program printed.
	LastLines string `json:"last_lines,omitempty"`
}

func (PiFailed) Type() string { return "signal.thread.pi_failed" }

func (f PiFailed) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(f.Epoch)}, Updates}} }

func (f PiFailed) Validate() error {
	if f.Error == "" {
		return fault.New(fault.Invalid, "error: it is empty", "say what went wrong")
	}
	return nil
}

// Plain has the last lines, too.
func (f PiFailed) Plain() string {
	text := "the run failed (" + f.Phase + "): " + f.Error
	if f.LastLines != "" {
		text += "\n" + f.LastLines
	}
	return text
}

// SessionOrphaned says that a run ended without a report: its runner, or its machine, is gone. It comes with the
// [StatusChanged] to failed.
type SessionOrphaned struct {
	Epoch int64 `json:"epoch"`
	// Reason says how arbe found out.
	Reason string `json:"reason"`
	// LastLines are the last lines of what the runner printed, as far as they can be read.
	LastLines string `json:"last_lines,omitempty"`
}

func (SessionOrphaned) Type() string { return "signal.thread.pi_session_orphaned" }

func (o SessionOrphaned) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(o.Epoch)}, Updates}} }

func (o SessionOrphaned) Validate() error {
	if o.Reason == "" {
		return fault.New(fault.Invalid, "reason: it is empty", "say how it was found out")
	}
	return nil
}

func (o SessionOrphaned) Plain() string { return "the run was lost: " + o.Reason }

// CancelRequested asks the runner of a run to stop its agent. Its author is who asked.
type CancelRequested struct {
	Epoch int64 `json:"epoch"`
}

func (CancelRequested) Type() string { return "signal.thread.cancel_requested" }

func (c CancelRequested) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(c.Epoch)}, Updates}} }

func (c CancelRequested) Validate() error {
	if c.Epoch < 1 {
		return noEpoch()
	}
	return nil
}

func (c CancelRequested) Plain() string { return "the run is to stop" }

// ChildFinished records in a thread that a run of one of its children has ended. Its author is the bot that drives the child.
type ChildFinished struct {
	ChildThreadID string `json:"child_thread_id"`
	Epoch         int64  `json:"epoch"`
	// Outcome is "completed", "failed" or "cancelled", and Error why it failed.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	Runtime string `json:"runtime"`
	// DurationMS is how long the run took, and Usage what its model calls used, as far as that is known.
	DurationMS int64      `json:"duration_ms"`
	Usage      *TurnUsage `json:"usage,omitempty"`
	// PatchArtifactID is the artifact with the changes of the child's working tree; empty if there is none.
	PatchArtifactID string `json:"patch_artifact_id,omitempty"`
	// Wakes is the bot that delegated, and waits for no further child; empty if a person delegated, or others still run. Root is
	// the entry of a person from which its turn follows.
	Wakes string `json:"wakes,omitempty"`
	Root  string `json:"root,omitempty"`
}

func (ChildFinished) Type() string { return "signal.thread.child_finished" }

func (c ChildFinished) parts(Entry) []Part {
	return []Part{{Work{ChildWork, c.ChildThreadID}, Updates}}
}

func (c ChildFinished) agents() []string { return []string{c.Wakes} }

func (c ChildFinished) Validate() error {
	if c.ChildThreadID == "" || c.Outcome == "" {
		return fault.New(fault.Invalid, "child_thread_id, outcome: one is empty", "give the thread and how its run ended")
	}
	return nil
}

func (c ChildFinished) Plain() string {
	return fmt.Sprintf("%s in thread %s: %s", c.Runtime, c.ChildThreadID, c.Ending())
}

// Ending says how it ended: "completed after 4 min".
func (c ChildFinished) Ending() string {
	text := c.Outcome
	if c.DurationMS > 0 {
		text += " after " + Approximately(time.Duration(c.DurationMS)*time.Millisecond)
	}
	if c.Error != "" {
		text += ": " + c.Error
	}
	return text
}

func noEpoch() error {
	return fault.New(fault.Invalid, "epoch: it is missing", "give the epoch of the run, which is in its token")
}
