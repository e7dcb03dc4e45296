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
// one ends it. The agent's answers and tool results are [PiAssistant] and [PiToolResult] entries of the bot, posted by its
// runner.
//
// The entries in this file record who asked for a run and how it went: the runner's own report ([Heartbeat], [RunFinished]),
// arbe's findings without it ([PiFailed], [SessionOrphaned]), and the records in the parent thread ([AgentSpawn],
// [ChildFinished], [ChildOverdue]).

// RunEntryID returns the id of a run's n-th entry. The id of a tool call's result is derived from its step's by
// [CallResultID].
func RunEntryID(epoch int64, n int) string { return RunID(epoch) + "." + strconv.Itoa(n) }

// RunEndID returns the id of the [RunFinished], [PiFailed] or [SessionOrphaned] that arbe writes for a run.
func RunEndID(epoch int64) string { return RunID(epoch) + ".end" }

// BeatID returns the id of the deltas that are the later heartbeats of a run. Each is one line of JSON: a [Heartbeat].
func BeatID(epoch int64) string { return RunID(epoch) + ".beat" }

// BeatOf returns the [RunID] of the run whose heartbeats have this id; ok is false for deltas of something else.
func BeatOf(id string) (run string, ok bool) {
	run, ok = strings.CutSuffix(id, ".beat")
	return run, ok && RunOf(id) == run
}

// BootID returns the id of the deltas about the preparation of a run: its steps, each a line that begins with "==> ", and
// their output.
func BootID(epoch int64) string { return RunID(epoch) + ".boot" }

// BootOf returns the [RunID] of the run whose preparation has deltas with this id; ok is false for deltas of something else.
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

// The outcomes of a run.
const (
	RunCompleted = "completed"
	RunFailed    = "failed"
	RunCancelled = "cancelled"
)

// The phases in which a run can fail.
const (
	// PhaseDispatch: before the agent began, because its sandbox, its program or its start failed.
	PhaseDispatch = "dispatch"
	// PhaseExecution: while the agent worked.
	PhaseExecution = "execution"
	// PhaseObservation: the agent, or its machine, is gone, and it is unknown how it ended.
	PhaseObservation = "observation"
	// PhaseResult: the agent has ended, but its report or its changes could not be collected. A run whose changes could not be
	// collected is completed nevertheless.
	PhaseResult = "result-collection"
)

var phases = []string{"", PhaseDispatch, PhaseExecution, PhaseObservation, PhaseResult}

// MaxTask limits a delegated task, in bytes.
const MaxTask = 256 << 10

// maxRunText limits an error, a reason or the last lines of an output in an entry of a run, in bytes.
const maxRunText = 32 << 10

// RunSummary identifies the run whose result a chat is.
type RunSummary struct {
	ThreadID string `json:"thread_id"`
	Epoch    int64  `json:"epoch"`
	// Outcome is "completed", "failed" or "cancelled".
	Outcome string `json:"outcome"`
	// Runtime is the coding agent.
	Runtime string `json:"runtime"`
}

// AgentSpawn records, in the thread of the request, that its author delegated a task to a coding agent.
type AgentSpawn struct {
	ChildThreadID string `json:"child_thread_id"`
	// AgentID is the bot that drives the child, and Runtime its coding agent.
	AgentID string `json:"agent_id"`
	Runtime string `json:"runtime"`
	// Task is the beginning of the task. The first chat of the child has all of it.
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

// Heartbeat reports that a run is alive. The log has the first one of each run; later ones reach only watchers.
type Heartbeat struct {
	Epoch int64 `json:"epoch"`
	// Phase is a word for what the agent is doing: "starting", "thinking", "tool", "waiting", "asking", "saving".
	Phase string `json:"phase"`
	// LastTool is the tool that it called last, if any.
	LastTool string `json:"last_tool,omitempty"`
	// Through is the position of the last chat that the agent was given; 0 if the runner does not say.
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

// Doing describes in a few words what the agent is doing: "thinking", "running bash".
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
	// StopReason is why the agent's last answer ended. ExitCode is the exit code of its program; nil if it did not exit.
	StopReason string `json:"stop_reason,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	// Error describes a failure, and Phase is the phase in which it happened; both are empty if there was none. A completed
	// run whose changes could not be collected has only the phase, and PatchError.
	Error string `json:"error,omitempty"`
	Phase string `json:"phase,omitempty"`
	// LastLines are the last lines of the program's output, if the run failed.
	LastLines string `json:"last_lines,omitempty"`
	// Usage is the usage of the run's model calls, as counted by the agent; nil if it did not count.
	Usage *TurnUsage `json:"usage,omitempty"`
	// Result is the last text of the agent.
	Result string `json:"result,omitempty"`
	// Through is as in [Heartbeat].
	Through int64 `json:"through,omitempty"`
	// PatchPath is the file in the sandbox with the changes of the working tree, and PatchArtifactID the artifact that stores
	// it.
	PatchPath       string `json:"patch_path,omitempty"`
	PatchArtifactID string `json:"patch_artifact_id,omitempty"`
	// PatchBytes, PatchFiles and PatchSHA256 describe that file. PatchBase is the commit that it applies to. PatchError tells
	// why there is no patch, or what it lacks.
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

// PiFailed gives the reason why a run failed, for every coding agent. It comes with the [StatusChanged] to failed.
type PiFailed struct {
	Epoch int64 `json:"epoch"`
	// Error describes the failure, and Next what to do about it.
	Error string `json:"error"`
	Next  string `json:"next,omitempty"`
	// ExitCode is the exit code of the agent's program; nil if it did not exit.
	ExitCode *int `json:"exit_code,omitempty"`
	// Phase is the phase in which it failed.
	Phase string `json:"phase"`
	// LastLines are the last lines of the program's output.
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

// Plain includes the last lines.
func (f PiFailed) Plain() string {
	text := "the run failed (" + f.Phase + "): " + f.Error
	if f.LastLines != "" {
		text += "\n" + f.LastLines
	}
	return text
}

// SessionOrphaned records that a run ended without a report, because its runner or its machine is gone. It comes with the
// [StatusChanged] to failed.
type SessionOrphaned struct {
	Epoch int64 `json:"epoch"`
	// Reason says how arbe found out.
	Reason string `json:"reason"`
	// LastLines are the last lines of the runner's output, if they can be read.
	LastLines string `json:"last_lines,omitempty"`
	// Phase is [PhaseResult] if the agent had ended, and otherwise empty.
	Phase string `json:"phase,omitempty"`
}

func (SessionOrphaned) Type() string { return "signal.thread.pi_session_orphaned" }

func (o SessionOrphaned) parts(Entry) []Part { return []Part{{Work{RunWork, RunID(o.Epoch)}, Updates}} }

func (o SessionOrphaned) Validate() error {
	switch {
	case o.Reason == "":
		return fault.New(fault.Invalid, "reason: it is empty", "say how it was found out")
	case o.Phase != "" && o.Phase != PhaseResult:
		return fault.Newf(fault.Invalid, "use result-collection, or leave it out", "phase: no run is lost in the phase %.40q", o.Phase)
	}
	return nil
}

func (o SessionOrphaned) Plain() string { return "the run was lost: " + o.Reason }

// CancelRequested records that its author asks the runner of a run to stop its agent.
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
	// DurationMS is the duration of the run, and Usage the known usage of its model calls.
	DurationMS int64      `json:"duration_ms"`
	Usage      *TurnUsage `json:"usage,omitempty"`
	// PatchArtifactID is the artifact, if any, with the changes of the child's working tree.
	PatchArtifactID string `json:"patch_artifact_id,omitempty"`
	// Wakes is the bot that delegated, if this was the last child it waits for; empty if a person delegated. Root is the
	// person's entry from which its turn follows.
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

// Ending describes the end: "completed after 4 min".
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

// ChildOverdue records in a thread that a bot no longer waits for the end of a task that it delegated. The run goes on, and a
// [ChildFinished] says how it ends.
type ChildOverdue struct {
	ChildThreadID string `json:"child_thread_id"`
	// Epoch is the run, and RunningMS how long it has taken so far; both are 0 if none has begun.
	Epoch     int64 `json:"epoch,omitempty"`
	RunningMS int64 `json:"running_ms,omitempty"`
	// Runtime is the coding agent, and Doing what it does, in a few words.
	Runtime string `json:"runtime"`
	Doing   string `json:"doing,omitempty"`
	// AgentID is the bot that waited.
	AgentID string `json:"agent_id"`
	// Wakes and Root are as in [ChildFinished].
	Wakes string `json:"wakes,omitempty"`
	Root  string `json:"root,omitempty"`
}

func (ChildOverdue) Type() string { return "signal.thread.child_overdue" }

func (c ChildOverdue) parts(Entry) []Part {
	return []Part{{Work{ChildWork, c.ChildThreadID}, Updates}}
}

func (c ChildOverdue) agents() []string { return []string{c.AgentID} }

func (c ChildOverdue) Validate() error {
	if c.ChildThreadID == "" || c.AgentID == "" {
		return fault.New(fault.Invalid, "child_thread_id, agent_id: one is empty", "give the thread and the bot")
	}
	return nil
}

func (c ChildOverdue) Plain() string {
	return fmt.Sprintf("%s in thread %s: %s", c.Runtime, c.ChildThreadID, c.State())
}

// State says how far the task is: "still at work after 2 h (running bash)".
func (c ChildOverdue) State() string {
	if c.RunningMS == 0 {
		return "it has not begun"
	}
	text := "still at work after " + Approximately(time.Duration(c.RunningMS)*time.Millisecond)
	if c.Doing != "" {
		text += " (" + c.Doing + ")"
	}
	return text
}

func noEpoch() error {
	return fault.New(fault.Invalid, "epoch: it is missing", "give the epoch of the run, which is in its token")
}
