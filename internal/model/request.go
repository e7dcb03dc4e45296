package model

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/anthropic"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Request is what a model is asked.
//
// Its messages may come from any model and need not be tidy: a call without a result gets one that says so, results
// move behind their calls, and a result without a call becomes text. Of an answer that failed or was stopped only the
// text is sent. Thinking is sent to the model that thought it, and to no other.
type Request struct {
	// System is the system prompt; it may be empty.
	System string
	// Messages are what was said so far; the last one is a user's or a tool's. There must be one.
	Messages []entry.PiMessage
	// Once is how many of the last messages only this request has. Later requests begin with those before them, so these
	// are what a provider is asked to cache.
	Once  int
	Tools []Tool
	// MaxTokens is the most that the answer may have. Defaults to the model's own default, or to 8192 where a provider
	// demands a number.
	MaxTokens int64
	// Effort is how hard the model thinks. Defaults to what the provider does. See [NoteOn].
	Effort entry.Effort
	// Pace waits until the next n bytes of the response may be checked, and end says that they were. It lets a server share
	// among houses what it spends on responses, which may come as fast as the network is. Defaults to nil: nothing waits.
	Pace func(n int) (end func())
}

// Tool is what a model may call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON schema of the arguments, which are an object; empty means no arguments. See [CheckArguments].
	Schema json.RawMessage
}

// defaultMaxTokens is the most that an answer may have if neither the request nor the catalog says.
const defaultMaxTokens = 8192

// toolName is what every provider takes as the name of a tool.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// call translates a request for fantasy. sealed is what of it fantasy cannot send; the wire does.
func (r Request) call(e Endpoint, id string) (call fantasy.Call, sealed *sealedThoughts, err error) {
	invalid := func(next, format string, args ...any) (fantasy.Call, *sealedThoughts, error) {
		return call, nil, fault.Newf(fault.Invalid, next, format, args...)
	}
	if len(r.Messages) == 0 {
		return invalid("add a message for the model to answer", "messages: there are none")
	}
	if _, isAnswer := r.Messages[len(r.Messages)-1].(entry.PiAssistant); isAnswer {
		return invalid("add a message for the model to answer", "messages: the last one is the model's own")
	}
	info := Lookup(e.Provider, id)
	t := translator{endpoint: e, model: id, images: Sees(e, id), sealed: newSealedThoughts()}
	call.Prompt = t.prompt(r)
	for _, tool := range r.Tools {
		schema, err := sendable(tool.Schema)
		if err != nil {
			return invalid("correct the schema", "tools: the schema of %q is not JSON: %v", entry.Clip(tool.Name, 80), err)
		}
		if !toolName.MatchString(tool.Name) {
			return invalid("use letters, digits, _ and -", "tools: %q cannot be the name of a tool", entry.Clip(tool.Name, 80))
		}
		call.Tools = append(call.Tools, fantasy.FunctionTool{Name: tool.Name, Description: tool.Description, InputSchema: schema})
	}
	limit := r.MaxTokens
	if limit <= 0 {
		limit = info.MaxTokens
	}
	if limit <= 0 && e.Dialect == Messages {
		limit = defaultMaxTokens
	}
	if limit > 0 {
		call.MaxOutputTokens = &limit
	}
	effort, err := entry.ParseEffort(string(r.Effort))
	if err != nil {
		return call, nil, err
	}
	call.ProviderOptions = r.thinking(e, id, info, effort, limit)
	return call, t.sealed, nil
}

// translator turns pi's messages into fantasy's.
type translator struct {
	endpoint Endpoint
	model    string
	images   bool
	// sealed has the thinking that fantasy does not send back.
	sealed *sealedThoughts
}

// prompt translates a request's messages, and marks for Anthropic's cache what later requests begin with: the system
// prompt, with the tools before it; the last message before the last answers, which is where the request before this one
// ended; and the last message that later requests have, too. Without the second, a step with many calls, or much that was said
// since, would miss the cache: Anthropic looks back only 20 blocks from a mark.
func (t translator) prompt(r Request) fantasy.Prompt {
	var prompt fantasy.Prompt
	if strings.TrimSpace(r.System) != "" {
		prompt = append(prompt, t.cached(fantasy.NewSystemMessage(r.System)))
	}
	lasting := len(prompt)
	used := make([]bool, len(r.Messages))
	for i, m := range r.Messages {
		if i == len(r.Messages)-r.Once {
			lasting = len(prompt)
		}
		switch m := m.(type) {
		case entry.PiUser:
			if parts := t.parts(m.Content); len(parts) > 0 {
				prompt = append(prompt, fantasy.Message{Role: fantasy.MessageRoleUser, Content: parts})
			}
		case entry.PiAssistant:
			message := t.answer(m)
			if len(message.Content) == 0 {
				continue
			}
			prompt = append(prompt, message)
			var seen []fantasy.MessagePart
			for _, part := range message.Content {
				if call, isCall := part.(fantasy.ToolCallPart); isCall && !t.sealed.has(part) {
					result, images := t.resultOf(call.ToolCallID, r.Messages[i+1:], used[i+1:])
					prompt = append(prompt, result)
					seen = append(seen, images...)
				}
			}
			if len(seen) > 0 { // behind all results, because providers want these to follow their calls
				prompt = append(prompt, fantasy.Message{Role: fantasy.MessageRoleUser, Content: seen})
			}
		case entry.PiToolResult:
			if !used[i] { // its call was compacted away, or belongs to an answer that failed
				text, err := json.Marshal(m.Text()) // a JSON string, so that no line of it reads as what a user says
				if err != nil {
					panic(err) // cannot happen for a string
				}
				prompt = append(prompt, fantasy.NewUserMessage(fmt.Sprintf("result of the tool %q: %s", m.ToolName, text)))
			}
		}
	}
	if r.Once == 0 {
		lasting = len(prompt)
	}
	t.mark(prompt[:lasting])
	return prompt
}

// mark marks up to where a prompt is cached besides its system prompt: its last message, and the last one before its last
// answers.
func (t translator) mark(prompt fantasy.Prompt) {
	isAnswer := func(i int) bool { return prompt[i].Role == fantasy.MessageRoleAssistant }
	last := len(prompt) - 1
	before := last
	for before >= 0 && !isAnswer(before) {
		before--
	}
	for before >= 0 && isAnswer(before) {
		before--
	}
	for _, at := range []int{before, last} {
		if at >= 0 && prompt[at].Role != fantasy.MessageRoleSystem {
			prompt[at] = t.cached(prompt[at])
		}
	}
}

// cached marks a message as the end of what the provider shall cache.
func (t translator) cached(m fantasy.Message) fantasy.Message {
	if t.endpoint.Dialect == Messages || t.endpoint.Provider == OpenRouter && strings.HasPrefix(t.model, "anthropic/") {
		m.ProviderOptions = anthropic.NewProviderCacheControlOptions(&anthropic.ProviderCacheControlOptions{CacheControl: anthropic.CacheControl{Type: "ephemeral"}})
	}
	return m
}

// errNoResult is what a model reads as the result of a call that has none.
var errNoResult = errors.New("there is no result: the tool was interrupted, and may or may not have done its work")

// resultOf finds the result of a call in the messages after it, up to the next answer with a call of that id: some
// servers restart their ids with each answer. images are those of the result that the dialect cannot have in it.
func (t translator) resultOf(id string, after []entry.PiMessage, used []bool) (result fantasy.Message, images []fantasy.MessagePart) {
	message := func(output fantasy.ToolResultOutputContent) fantasy.Message {
		return fantasy.Message{Role: fantasy.MessageRoleTool, Content: []fantasy.MessagePart{fantasy.ToolResultPart{ToolCallID: id, Output: output}}}
	}
search:
	for i, m := range after {
		switch m := m.(type) {
		case entry.PiAssistant:
			for _, call := range m.Calls() {
				if sentID(call.ID) == id {
					break search
				}
			}
		case entry.PiToolResult:
			if used[i] || sentID(m.ToolCallID) != id {
				continue
			}
			used[i] = true
			output, images := t.output(m)
			return message(output), images
		}
	}
	return message(fantasy.ToolResultOutputContentError{Error: errNoResult}), nil
}

// output translates a result. Only Anthropic's dialect has a place for an image in it, for one; others get the images as what a
// user says.
func (t translator) output(m entry.PiToolResult) (fantasy.ToolResultOutputContent, []fantasy.MessagePart) {
	text := m.Text()
	var images []fantasy.MessagePart
	for _, b := range m.Content {
		if b.Type == entry.PiImageBlock && t.images && !m.IsError && b.Data != "" {
			images = append(images, t.parts([]entry.PiBlock{b})...)
			if t.endpoint.Dialect == Messages {
				return fantasy.ToolResultOutputContentMedia{Data: b.Data, MediaType: b.MIMEType, Text: text}, nil
			}
		}
	}
	if strings.TrimSpace(text) == "" {
		text = "(no output)" // which some providers refuse to be empty
	}
	if m.IsError {
		return fantasy.ToolResultOutputContentError{Error: errors.New(text)}, nil
	}
	if len(images) > 0 {
		about := fantasy.TextPart{Text: fmt.Sprintf("the image that belongs to the result of the tool %q:", m.ToolName)}
		images = append([]fantasy.MessagePart{about}, images...)
	}
	return fantasy.ToolResultOutputContentText{Text: text}, images
}

// parts translates what a user said. Empty texts are left out, because providers refuse them.
func (t translator) parts(blocks []entry.PiBlock) []fantasy.MessagePart {
	var parts []fantasy.MessagePart
	for _, b := range blocks {
		switch b.Type {
		case entry.PiTextBlock:
			if strings.TrimSpace(b.Text) != "" {
				parts = append(parts, fantasy.TextPart{Text: b.Text})
			}
		case entry.PiImageBlock:
			data, err := base64.StdEncoding.DecodeString(b.Data)
			if err != nil || len(data) == 0 || !t.images {
				parts = append(parts, fantasy.TextPart{Text: "[an image that cannot be shown to this model]"})
				continue
			}
			parts = append(parts, fantasy.FilePart{Data: data, MediaType: b.MIMEType})
		}
	}
	return parts
}

// answer translates an earlier answer.
func (t translator) answer(a entry.PiAssistant) fantasy.Message {
	m := fantasy.Message{Role: fantasy.MessageRoleAssistant}
	whole := a.StopReason != entry.PiError && a.StopReason != entry.PiAborted
	same := thoughtBy(a, t.endpoint, t.model)
	for _, b := range a.Content {
		switch b.Type {
		case entry.PiTextBlock:
			if strings.TrimSpace(b.Text) != "" {
				m.Content = append(m.Content, fantasy.TextPart{Text: b.Text})
			}
		case entry.PiThinkingBlock:
			if whole && same {
				if part := t.thought(b); part != nil {
					m.Content = append(m.Content, part)
				}
			}
		case entry.PiCallBlock:
			if !whole {
				continue
			}
			input := string(b.Arguments)
			if !strings.HasPrefix(strings.TrimSpace(input), "{") || !json.Valid(b.Arguments) {
				input = "{}"
			}
			m.Content = append(m.Content, fantasy.ToolCallPart{ToolCallID: sentID(b.ID), ToolName: b.Name, Input: input})
		}
	}
	// OpenAI refuses thinking without what followed from it.
	for n := len(m.Content); n > 0 && t.sealed.has(m.Content[n-1]); n-- {
		m.Content = m.Content[:n-1]
	}
	return m
}

// notInIDs are the characters that some provider does not take in the id of a call.
var notInIDs = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// sentID returns a call's id as every provider takes it. What follows a | is pi's, for responses.
func sentID(id string) string {
	id, _, _ = strings.Cut(id, "|")
	id = notInIDs.ReplaceAllString(id, "_")
	return id[:min(len(id), 40)]
}
