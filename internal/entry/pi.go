package entry

import (
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// PiMessage is a message between a model and its user in the shape of pi's sessions: a [PiUser], a [PiAssistant] or a
// [PiToolResult]. Every transcript has this shape, whatever wrote it, so that a session for any runtime can be rebuilt from
// it.
type PiMessage interface {
	// PiRole is the message's role: "user", "assistant" or "toolResult".
	PiRole() string
}

// PiUser is a message to the model.
type PiUser struct {
	// Content has blocks of text and images.
	Content []PiBlock
	// Timestamp is the time in milliseconds since 1970; 0 if it is not known.
	Timestamp int64
}

// PiAssistant is one answer of a model, from a single call.
type PiAssistant struct {
	// Harness made the call, such as "pi"; empty for arbe's own bots. It is arbe's addition to pi's shape.
	Harness string
	// Turn is the id of the turn that it is a step of; empty for a coding agent's. It is arbe's addition, too.
	Turn string
	// Content has blocks of text, thinking and tool calls, in the order in which they were written.
	Content []PiBlock
	// API is the dialect of the call in pi's names, such as "anthropic-messages". Provider and Model are those that were
	// asked.
	API      string
	Provider string
	Model    string
	// ResponseID is the provider's id of the answer; empty if it gave none.
	ResponseID string
	Usage      PiUsage
	// StopReason is the reason why the answer ended. Tool calls are run only if it is [PiToolUse].
	StopReason PiStop
	// ErrorMessage describes the error if StopReason is [PiError] or [PiAborted].
	ErrorMessage string
	// Timestamp is the start of the call, in milliseconds since 1970, and DurationMS its duration.
	Timestamp  int64
	DurationMS int64
}

// PiToolResult is the result of one tool call.
type PiToolResult struct {
	// Harness and Turn are as in [PiAssistant].
	Harness string
	Turn    string
	// ToolCallID is the ID of the call's block, and ToolName its Name.
	ToolCallID string
	ToolName   string
	// Content has blocks of text and images.
	Content []PiBlock
	// Details may be nil.
	Details *PiDetails
	// IsError tells the model that the call failed.
	IsError bool
	// Timestamp is the end of the tool, in milliseconds since 1970, and DurationMS its duration.
	Timestamp  int64
	DurationMS int64
}

// PiDetails is the part of a result that the model does not read as text.
type PiDetails struct {
	// Path is the file that the tool wrote, and Diff its change as a unified diff; empty if the file is not text. Added and
	// Removed count its lines. A long diff is shortened, and the artifact ArtifactID has all of it.
	Path       string `json:"path,omitempty"`
	Diff       string `json:"diff,omitempty"`
	Added      int64  `json:"added,omitempty"`
	Removed    int64  `json:"removed,omitempty"`
	ArtifactID string `json:"artifactId,omitempty"`
	// WholeBytes is the length of the result's whole text, if the content has only a part of it; otherwise 0. ArtifactID is
	// then the artifact with the whole text; empty if it could not be kept.
	WholeBytes int64 `json:"wholeBytes,omitempty"`
	// Instructions is the workspace's AGENTS.md, if this is the turn's first use of the sandbox and the bot has not read the
	// current version. The model reads it as a note after the result.
	Instructions string `json:"instructions,omitempty"`
}

// PiRole returns "user".
func (PiUser) PiRole() string { return "user" }

// PiRole returns "assistant".
func (PiAssistant) PiRole() string { return "assistant" }

// PiRole returns "toolResult".
func (PiToolResult) PiRole() string { return "toolResult" }

// PiStop is the reason why an answer ended.
type PiStop string

// The reasons why an answer ends.
const (
	// PiStopped: the model was done.
	PiStopped PiStop = "stop"
	// PiLength: the token limit was reached.
	PiLength PiStop = "length"
	// PiToolUse: the model waits for the results of its tool calls.
	PiToolUse PiStop = "toolUse"
	// PiError: the call failed. The text so far is kept.
	PiError PiStop = "error"
	// PiAborted: someone stopped the call. The text so far is kept.
	PiAborted PiStop = "aborted"
)

// PiUsage counts the tokens of one call.
type PiUsage struct {
	// Input counts tokens read without a cache, CacheRead those read from one, and CacheWrite those put into one. The three
	// do not overlap.
	Input      int64 `json:"input"`
	Output     int64 `json:"output"` // including thinking
	CacheRead  int64 `json:"cacheRead"`
	CacheWrite int64 `json:"cacheWrite"`
	// TotalTokens is the sum of the four.
	TotalTokens int64 `json:"totalTokens"`
	// Cost is nil if the model's price is not known, which differs from a price of zero.
	Cost *PiCost `json:"cost,omitempty"`
}

// PiCost is the cost of the tokens of a [PiUsage], in US dollars.
type PiCost struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
	Total      float64 `json:"total"`
	// TotalFromProvider reports that the total is the provider's; the parts are then zero.
	TotalFromProvider bool `json:"totalFromProvider,omitempty"`
}

// The types of a [PiBlock].
const (
	PiTextBlock     = "text"
	PiThinkingBlock = "thinking"
	PiCallBlock     = "toolCall"
	PiImageBlock    = "image"
)

// PiBlock is one part of a message. Its type determines its fields; the others are left out of its JSON.
type PiBlock struct {
	Type string

	// Text is Markdown. TextSignature is the provider's mark of it.
	Text          string
	TextSignature string

	// Thinking is the model's thinking. Its provider accepts it only with the proof in ThinkingSignature. Redacted thinking
	// has no text: its signature holds it encrypted.
	Thinking          string
	ThinkingSignature string
	Redacted          bool

	// ID names the tool call, also in its result, and Name the tool. Arguments is a JSON object; if the model wrote something
	// else, or nested it deeply, it is a JSON string with the model's text. ThoughtSignature is the provider's mark of the
	// call.
	ID               string
	Name             string
	Arguments        json.RawMessage
	ThoughtSignature string
	// WholeBytes is the length of a call's whole arguments, if Arguments has only a part of them; otherwise 0. ArtifactID is
	// then the artifact with all of them; empty if they could not be kept. It is arbe's addition to pi's shape.
	WholeBytes int64

	// Data is the image in base64, and MIMEType such as "image/png".
	Data     string
	MIMEType string
	// ArtifactID is also the artifact of an image whose Data is empty. Width and Height are the size in pixels at which a model
	// sees it. They are arbe's addition to pi's shape, so that a log need not hold images twice.
	ArtifactID string
	Width      int
	Height     int
	// Size is the length in bytes of a text that is read from ArtifactID before a model gets it. No entry has such a block.
	Size int64
}

// PiText returns a block of text.
func PiText(text string) PiBlock { return PiBlock{Type: PiTextBlock, Text: text} }

// Type returns the kind of its entry.
func (PiAssistant) Type() string { return "pi.assistant" }

// parts: an answer opens its calls only if it ended with [PiToolUse], because otherwise they are never run.
func (a PiAssistant) parts(e Entry) []Part {
	parts := []Part{{Work{StepWork, e.ID}, Completes}, {Work{TurnWork, a.Turn}, Updates}, {Work{RunWork, RunOf(e.ID)}, Updates}}
	if a.StopReason == PiToolUse {
		for n := range a.Calls() {
			parts = append(parts, Part{Work{CallWork, CallResultID(e.ID, n)}, Opens})
		}
	}
	return parts
}

// Validate requires a stop reason.
func (a PiAssistant) Validate() error {
	if a.StopReason == "" {
		return fault.New(fault.Invalid, "stopReason: it is empty", "give the reason why the answer ended")
	}
	return nil
}

// Plain returns the text, and the tool calls as one line each.
func (a PiAssistant) Plain() string {
	lines := []string{}
	if text := a.Text(); text != "" {
		lines = append(lines, text)
	}
	for _, c := range a.Calls() {
		lines = append(lines, "→ "+c.Name+" "+string(c.Arguments))
	}
	if a.ErrorMessage != "" {
		lines = append(lines, "["+a.ErrorMessage+"]")
	}
	return strings.Join(lines, "\n")
}

// Type returns the kind of its entry.
func (PiToolResult) Type() string { return "pi.tool_result" }

func (r PiToolResult) parts(e Entry) []Part {
	return []Part{{Work{CallWork, e.ID}, Completes}, {Work{TurnWork, r.Turn}, Updates}, {Work{RunWork, RunOf(e.ID)}, Updates}}
}

// Validate requires the id of the call.
func (r PiToolResult) Validate() error {
	if r.ToolCallID == "" {
		return fault.New(fault.Invalid, "toolCallId: it is empty", "give the id of the tool call")
	}
	return nil
}

// Plain returns the text.
func (r PiToolResult) Plain() string { return r.Text() }

// PiCompaction replaces the older part of a transcript by a summary, because a model's input is limited.
type PiCompaction struct {
	// Harness and Turn are as in [PiAssistant].
	Harness string `json:"harness,omitempty"`
	Turn    string `json:"turn,omitempty"`
	Summary string `json:"summary"`
	// FirstKeptSeq is the position of the first entry that the summary does not cover.
	FirstKeptSeq int64 `json:"firstKeptSeq"`
	// TokensBefore is the estimated size of the transcript without the summary.
	TokensBefore int64 `json:"tokensBefore"`
}

func (PiCompaction) Type() string { return "pi.compaction" }

func (c PiCompaction) parts(e Entry) []Part {
	return []Part{{Work{TurnWork, c.Turn}, Notes}, {Work{RunWork, RunOf(e.ID)}, Notes}}
}

// Validate requires a summary.
func (c PiCompaction) Validate() error {
	if strings.TrimSpace(c.Summary) == "" || c.FirstKeptSeq < 1 {
		return fault.New(fault.Invalid, "summary, firstKeptSeq: one is empty", "give the summary and the first entry after it")
	}
	return nil
}

func (c PiCompaction) Plain() string { return "[summary of what was said before]\n" + c.Summary }

// Text returns the blocks of text as one, without thinking and calls.
func (a PiAssistant) Text() string { return piText(a.Content) }

// Thought returns the visible thinking as one text.
func (a PiAssistant) Thought() string {
	var texts []string
	for _, b := range a.Content {
		if b.Type == PiThinkingBlock && strings.TrimSpace(b.Thinking) != "" {
			texts = append(texts, strings.TrimSpace(b.Thinking))
		}
	}
	return strings.Join(texts, "\n\n")
}

// Text returns the blocks of text as one.
func (u PiUser) Text() string { return piText(u.Content) }

// Text returns the blocks of text as one.
func (r PiToolResult) Text() string { return piText(r.Content) }

// Calls returns the tool calls.
func (a PiAssistant) Calls() []PiBlock {
	var calls []PiBlock
	for _, b := range a.Content {
		if b.Type == PiCallBlock {
			calls = append(calls, b)
		}
	}
	return calls
}

func piText(blocks []PiBlock) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == PiTextBlock && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// PiChunk is a piece of an answer that a model is writing (pi.chunk). It is not an entry: it reaches watchers of a thread as
// a line of JSON in a delta, whose entry id begins with the id of the step's entry.
type PiChunk struct {
	// Kind is "text", "thinking", "call_start", "call_args", "call_end" or "retry".
	Kind string `json:"kind"`
	// Block is the index of the block that it belongs to.
	Block int `json:"block"`
	// Text is appended to the block. In a retry, it tells whom the turn waits for, why, and when it asks the model again.
	Text string `json:"text,omitempty"`
	// CallID and Name identify a tool call at its start; its other chunks have the CallID.
	CallID string `json:"call_id,omitempty"`
	Name   string `json:"name,omitempty"`
	// DelayMS is the delay until the model is asked again, in milliseconds.
	DelayMS int64 `json:"delay_ms,omitempty"`
}
