package transcript

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

// maxCalls limits the tool calls of one step that a page shows.
const maxCalls = 64

// Step is a step of a turn: the bot's text before its tool calls, and the calls.
type Step struct {
	Thread string
	Seq    int64
	Blocks []Block
	// Folded reports that a text is not fully shown. MoreCalls is the number of calls that are not shown.
	Folded    bool
	MoreCalls int
	// Note says that the step is incomplete.
	Note string
}

// Block is one part of a step: a text, thinking or a tool call.
type Block struct {
	// HTML is a text.
	HTML     string
	Thinking *Thought
	Call     *Call
}

// Call is a tool call with its result, if it has ended.
type Call struct {
	// Key is the call's id in the page.
	Key, Name, Summary, Arguments string
	// Whole is the length of the complete arguments, which Artifact has, if the log has only a part of them; otherwise 0.
	Whole    int64
	Artifact string
	// Class is "running", "waiting" for a person's approval, "completed", "failed", or "cancelled" if its turn ended before
	// it did.
	Class  string
	Result *CallResult
	// Plan is the plan that the call writes; nil if it writes none.
	Plan *Plan
	// InCommand reports that a command's block shows the call.
	InCommand bool
}

// CallResult is the result of a tool call.
type CallResult struct {
	Text   string
	Failed bool
	Took   time.Duration
	// Diff is the change to a file. If it is cut, Artifact has all of it. Instructions are the workspace's instructions,
	// which the model read with this result.
	Diff, Artifact, Instructions string
	// Whole is the length of the complete text, which Artifact has, if this is only a part of it. It is 0 if this is all.
	Whole int64
}

// Word returns the state as a word.
func (c Call) Word() string {
	switch c.Class {
	case "completed":
		return "done"
	case "cancelled":
		return "not ended"
	case "waiting":
		return "waits for approval"
	}
	return c.Class
}

// Compaction is a summary that replaced earlier messages for the model.
type Compaction struct{ HTML string }

// TurnEnd is the end of a turn without an answer.
type TurnEnd struct {
	Thread, House string
	End           entry.TurnEnded
	Class, What   string
	// Why says why the turn began, if no row says so.
	Why      string
	Question Question
}

// step shows a step. If a step has only calls of commands, the blocks of the commands show it.
func step(_ context.Context, k *known, e entry.Entry, a entry.PiAssistant) Body {
	v := Step{Thread: k.thread, Seq: e.Seq}
	calls := 0
	for _, b := range a.Content {
		if b.Type == entry.PiCallBlock {
			calls++
		}
		if shown, ok := k.block(&v, e, b, calls-1); ok {
			v.Blocks = append(v.Blocks, shown)
		}
	}
	v.MoreCalls = max(calls-maxCalls, 0)
	switch {
	case a.Turn == "" && a.ErrorMessage != "": // otherwise the turn's end shows it
		v.Note = entry.Clip(a.ErrorMessage, MaxNote)
	case a.StopReason == entry.PiAborted:
		v.Note = "Stopped here."
	case a.StopReason == entry.PiError:
		v.Note = "Interrupted here."
	}
	if len(v.Blocks) == 0 && v.MoreCalls == 0 && (v.Note == "" || a.Turn != "") && calls > 0 {
		return nil
	}
	return v
}

// isWork reports whether a row shows only tool calls of a bot, or a command that it ran.
func isWork(e entry.Entry, b Body) bool {
	switch b := b.(type) {
	case Command:
		return entry.AnswerOf(e.ID) != ""
	case Call:
		return true
	case Step:
		calls := 0
		for _, part := range b.Blocks {
			if part.HTML != "" {
				return false
			}
			if part.Call != nil {
				calls++
			}
		}
		return calls > 0 && b.Note == ""
	}
	return false
}

// block shows one part of a step. call is the part's number if it is a call. ok is false for a part that is not shown here.
func (k *known) block(v *Step, e entry.Entry, b entry.PiBlock, call int) (shown Block, ok bool) {
	switch b.Type {
	case entry.PiTextBlock:
		text := b.Text
		if strings.TrimSpace(text) == "" {
			return shown, false
		}
		if !k.unfolded && isVeryLong(text) {
			text, v.Folded = beginning(text), true
		}
		return Block{HTML: markup.Markdown(text, k.effort)}, true
	case entry.PiThinkingBlock:
		thought := k.thoughtOf(e, b.Thinking)
		return Block{Thinking: thought}, thought != nil
	case entry.PiCallBlock:
		if call >= maxCalls {
			return shown, false
		}
		c := k.callOf(entry.CallResultID(e.ID, call), b)
		return Block{Call: &c}, !c.InCommand
	}
	return shown, false
}

// callOf describes a tool call. result is the id of the entry that has, or will have, its result.
func (k *known) callOf(result string, b entry.PiBlock) Call {
	v := Call{Key: callKey(result), Name: toolName(b.Name), Class: "running", Whole: b.WholeBytes, Artifact: b.ArtifactID}
	v.Summary, v.Arguments = argumentsText(b.Arguments)
	v.Plan = planOf(b.Name, b.Arguments)
	call := k.ledger.Of(entry.CallWork, result)
	if r, ended := entry.SeenAs[entry.PiToolResult](call.Completed()); ended {
		v.Result, v.Class = callResult(r)
	} else if t := k.turn(entry.AnswerOf(result)); !t.known() || t.Ended {
		v.Class = "cancelled"
	} else if k.awaitsAnswer(call) {
		v.Class = "waiting"
	}
	_, v.InCommand = entry.Latest[entry.Command](call)
	return v
}

// awaitsAnswer reports whether a call waits for a person's approval.
func (k *known) awaitsAnswer(call *entry.Progress) bool {
	asked, ok := entry.Latest[entry.PermissionAsked](call)
	return ok && k.ledger.Of(entry.ApprovalWork, asked.ApprovalID).Completed() == nil
}

// toolResult shows nothing if its step or a command's block shows the result.
func toolResult(_ context.Context, k *known, e entry.Entry, r entry.PiToolResult) Body {
	call := k.ledger.Of(entry.CallWork, e.ID)
	if _, ran := entry.Latest[entry.Command](call); ran || call.Opened() != nil {
		return nil
	}
	v := Call{Key: callKey(e.ID), Name: toolName(r.ToolName)}
	v.Result, v.Class = callResult(r)
	return v
}

func compaction(_ context.Context, k *known, _ entry.Entry, c entry.PiCompaction) Body {
	text := c.Summary
	if len(text) > maxShown {
		text = beginning(text)
	}
	return Compaction{markup.Markdown(text, k.effort)}
}

// turnStarted shows nothing, because the first row of the turn says why it began.
func turnStarted(context.Context, *known, entry.Entry, entry.TurnStarted) Body { return nil }

func turnSteered(_ context.Context, k *known, _ entry.Entry, s entry.TurnSteered) Body {
	return WhyNote{"waiting", k.named(s.AgentID) + " got this while it was working", entry.ReasonSteered.Explain()}
}

func skipped(_ context.Context, k *known, _ entry.Entry, s entry.Skipped) Body {
	return WhyNote{"idle", k.named(s.AgentID) + " did not answer", entry.Clip(cmp.Or(s.Explanation, why(s.Reason)), MaxNote)}
}

func turnEnded(_ context.Context, k *known, _ entry.Entry, end entry.TurnEnded) Body {
	v := TurnEnd{Thread: k.thread, House: k.house, End: end, Class: "failed", Question: k.questionOf(end.EntryID)}
	v.What = k.named(end.AgentID) + " did not answer: " + entry.Clip(end.Message, MaxNote)
	switch end.Outcome {
	case entry.TurnStopped:
		v.Class, v.What = "cancelled", k.named(end.AgentID)+" was stopped"
		if by := k.people.ByID(end.StoppedBy); end.StoppedBy != "" && by.Name != "" {
			v.What += " by " + entry.Clip(by.Name, MaxWord)
		}
	case entry.TurnLimited:
		v.Class = "waiting"
	}
	if !k.explained[end.TurnID] {
		v.Why = why(k.turn(end.TurnID).Reason)
	}
	return v
}

// callResult describes the result of a call, and its class.
func callResult(r entry.PiToolResult) (v *CallResult, class string) {
	v = &CallResult{Text: entry.Clip(r.Text(), maxShown), Failed: r.IsError, Took: time.Duration(r.DurationMS) * time.Millisecond}
	if d := r.Details; d != nil {
		v.Whole = d.WholeBytes
		v.Diff, v.Artifact, v.Instructions = entry.Clip(d.Diff, maxShown), d.ArtifactID, entry.Clip(d.Instructions, maxShown)
	}
	if r.IsError {
		return v, "failed"
	}
	return v, "completed"
}

// argumentsText returns the arguments of a tool call as one line, and as a text to read. Both show every character, because
// otherwise people could read a different call from the one that runs.
func argumentsText(arguments json.RawMessage) (summary, text string) {
	if len(arguments) > maxArguments || !json.Valid(arguments) {
		text = entry.Literal(entry.Clip(string(arguments[:min(len(arguments), 2*maxShown)]), maxShown))
		return entry.OneLine(text, maxSummary), text
	}
	list := entry.Arguments(arguments)
	var parts []string
	for _, a := range list {
		if len(list) > 1 {
			a.Value = a.Name + ": " + a.Value
		}
		parts = append(parts, a.Value)
	}
	pretty, ok := indented(arguments)
	if !ok {
		pretty = string(arguments)
	}
	return entry.OneLine(strings.Join(parts, ", "), maxSummary), entry.Literal(entry.Clip(pretty, maxShown))
}

func toolName(name string) string { return cmp.Or(entry.OneLine(entry.Literal(name), 80), "tool") }

func callKey(resultID string) string { return blockKey(resultID) + "-call" }

// PlanIn returns the last plan that a row's body writes, or nil.
func PlanIn(b Body) (last *Plan) {
	switch b := b.(type) {
	case Call:
		return b.Plan
	case Step:
		for _, part := range b.Blocks {
			if part.Call != nil && part.Call.Plan != nil {
				last = part.Call.Plan
			}
		}
	}
	return last
}
