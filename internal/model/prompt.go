package model

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// prompt prepares a request to be written for a model.
func (r Request) prompt(e Endpoint, id string) (prompt, error) {
	invalid := func(next, format string, args ...any) (prompt, error) {
		return prompt{}, fault.Newf(fault.Invalid, next, format, args...)
	}
	if len(r.Messages) == 0 {
		return invalid("add a message for the model to answer", "messages: there are none")
	}
	if _, isAnswer := r.Messages[len(r.Messages)-1].(entry.PiAssistant); isAnswer {
		return invalid("add a message for the model to answer", "messages: the last one is the model's own")
	}
	info := Lookup(e.Provider, id)
	tools, err := functions(r.Tools)
	if err != nil {
		return prompt{}, err
	}
	p := prompt{endpoint: e, model: id, tools: tools, limit: r.limit(info, e.Dialect)}
	if strings.TrimSpace(r.System) != "" {
		p.system = r.System
	}
	t := translator{endpoint: e, model: id, images: Sees(e, id)}
	p.messages = t.messages(r)
	effort, err := entry.ParseEffort(string(r.Effort))
	if err != nil {
		return prompt{}, err
	}
	p.thinking = r.thinking(e, id, info, effort, p.limit)
	return p, nil
}

// functions prepares tools to be offered to a model.
func functions(tools []Tool) (prepared []function, err error) {
	for _, tool := range tools {
		schema, err := sendable(tool.Schema)
		if err != nil {
			return nil, fault.Newf(fault.Invalid, "correct the schema", "tools: the schema of %q is not JSON: %v", entry.Clip(tool.Name, 80), err)
		}
		if !toolName.MatchString(tool.Name) {
			return nil, fault.Newf(fault.Invalid, "use letters, digits, _ and -", "tools: %q cannot be the name of a tool", entry.Clip(tool.Name, 80))
		}
		prepared = append(prepared, function{tool.Name, tool.Description, schema})
	}
	return prepared, nil
}

// limit returns how many tokens the answer may have. 0 leaves it to the server.
func (r Request) limit(info Info, d Dialect) int64 {
	if r.MaxTokens > 0 {
		return r.MaxTokens
	}
	if info.MaxTokens <= 0 && d == Messages {
		return defaultMaxTokens
	}
	return info.MaxTokens
}

// translator turns the messages of a request into those of a prompt.
type translator struct {
	endpoint Endpoint
	model    string
	images   bool
}

// messages translates a request's messages, and marks two points for Anthropic's cache, besides the system prompt with
// the tools: the last message before the last answers, where the previous request ended, and the last message that
// later requests also have. Without the first mark, a step with many calls, or with many messages since, would miss the
// cache, because Anthropic looks back only 20 blocks from a mark.
func (t translator) messages(r Request) (all []message) {
	lasting := 0
	used := make([]bool, len(r.Messages))
	for i, m := range r.Messages {
		if i == len(r.Messages)-r.Once {
			lasting = len(all)
		}
		switch m := m.(type) {
		case entry.PiUser:
			if blocks := t.shown(m.Content); len(blocks) > 0 {
				all = append(all, message{role: userRole, blocks: blocks})
			}
		case entry.PiAssistant:
			all = append(all, t.answered(m, r.Messages[i+1:], used[i+1:])...)
		case entry.PiToolResult:
			if !used[i] { // its call was compacted away, or belongs to an answer that failed
				all = append(all, orphan(m))
			}
		}
	}
	if r.Once == 0 {
		lasting = len(all)
	}
	mark(all[:lasting])
	return all
}

// answered translates an answer with the results of its calls, which are in the messages after it.
func (t translator) answered(m entry.PiAssistant, after []entry.PiMessage, used []bool) (all []message) {
	blocks := t.answer(m)
	if len(blocks) == 0 {
		return nil
	}
	all = append(all, message{role: modelRole, blocks: blocks})
	var seen []entry.PiBlock
	for _, b := range blocks {
		if b.Type == entry.PiCallBlock {
			result, images := t.resultOf(b, after, used)
			all = append(all, result)
			seen = append(seen, images...)
		}
	}
	if len(seen) > 0 { // after all results, because providers want these to follow their calls
		all = append(all, message{role: userRole, blocks: seen})
	}
	return all
}

// orphan translates a result without its call.
func orphan(m entry.PiToolResult) message {
	text, err := json.Marshal(m.Text()) // a JSON string, so that no line of it looks like a user's text
	if err != nil {
		panic(err) // cannot happen for a string
	}
	about := entry.PiText(fmt.Sprintf("result of the tool %q: %s", m.ToolName, text))
	return message{role: userRole, blocks: []entry.PiBlock{about}}
}

// mark marks the ends of the cached parts: the last message, and the last one before the last answers.
func mark(messages []message) {
	last := len(messages) - 1
	before := last
	for before >= 0 && messages[before].role != modelRole {
		before--
	}
	for before >= 0 && messages[before].role == modelRole {
		before--
	}
	for _, at := range []int{before, last} {
		if at >= 0 {
			messages[at].cached = true
		}
	}
}

// noResult is the text for a model in place of a missing result of a call.
const noResult = "there is no result: the tool was interrupted, and may or may not have done its work"

// resultOf finds the result of a call in the messages after it, up to the next answer with a call of the same id,
// because some servers restart their ids with each answer. images are the images that the dialect does not allow in a
// result.
func (t translator) resultOf(call entry.PiBlock, after []entry.PiMessage, used []bool) (result message, images []entry.PiBlock) {
	result = message{role: toolRole, call: call.ID, tool: call.Name}
search:
	for i, m := range after {
		switch m := m.(type) {
		case entry.PiAssistant:
			for _, other := range m.Calls() {
				if sentID(other.ID) == call.ID {
					break search
				}
			}
		case entry.PiToolResult:
			if used[i] || sentID(m.ToolCallID) != call.ID {
				continue
			}
			used[i] = true
			result.failed = m.IsError
			result.blocks, images = t.output(m)
			return result, images
		}
	}
	result.blocks, result.failed = []entry.PiBlock{entry.PiText(noResult)}, true
	return result, nil
}

// output translates a result. Only Anthropic's dialect allows an image in it, and only one; in others, the images
// become a user's message.
func (t translator) output(m entry.PiToolResult) (blocks, images []entry.PiBlock) {
	text := m.Text()
	for _, b := range m.Content {
		if b.Type != entry.PiImageBlock || !t.images || m.IsError || b.Data == "" {
			continue
		}
		if t.endpoint.Dialect == Messages {
			blocks = []entry.PiBlock{b}
			if text != "" {
				blocks = append(blocks, entry.PiText(text))
			}
			return blocks, nil
		}
		images = append(images, t.shown([]entry.PiBlock{b})...)
	}
	if strings.TrimSpace(text) == "" {
		text = "(no output)" // because some providers refuse an empty result
	}
	if len(images) > 0 {
		about := entry.PiText(fmt.Sprintf("the image that belongs to the result of the tool %q:", m.ToolName))
		images = append([]entry.PiBlock{about}, images...)
	}
	return []entry.PiBlock{entry.PiText(text)}, images
}

// shown translates a user's message. It leaves out empty texts, because providers refuse them.
func (t translator) shown(said []entry.PiBlock) (blocks []entry.PiBlock) {
	for _, b := range said {
		switch b.Type {
		case entry.PiTextBlock:
			if strings.TrimSpace(b.Text) != "" {
				blocks = append(blocks, b)
			}
		case entry.PiImageBlock:
			if data, err := base64.StdEncoding.DecodeString(b.Data); err != nil || len(data) == 0 || !t.images || !strings.HasPrefix(b.MIMEType, "image/") {
				b = entry.PiText("[an image that cannot be shown to this model]")
			}
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// answer translates an earlier answer. It is empty if only thinking is left, which providers refuse on its own.
func (t translator) answer(a entry.PiAssistant) (blocks []entry.PiBlock) {
	whole := a.StopReason != entry.PiError && a.StopReason != entry.PiAborted
	same := thoughtBy(a, t.endpoint, t.model)
	says := false
	for _, b := range a.Content {
		b, kept := t.kept(b, whole, same)
		if !kept {
			continue
		}
		says = says || b.Type != entry.PiThinkingBlock
		blocks = append(blocks, b)
	}
	if !says && t.endpoint.Dialect != Chat {
		return nil
	}
	if t.endpoint.Dialect == Responses { // OpenAI refuses thinking without the item after it
		for blocks[len(blocks)-1].Type == entry.PiThinkingBlock {
			blocks = blocks[:len(blocks)-1]
		}
	}
	return blocks
}

// kept translates a block of an earlier answer, and reports whether it is sent again. whole reports whether the answer
// ended well, and same whether it is of the same model.
func (t translator) kept(b entry.PiBlock, whole, same bool) (entry.PiBlock, bool) {
	switch b.Type {
	case entry.PiTextBlock:
		return b, strings.TrimSpace(b.Text) != ""
	case entry.PiThinkingBlock:
		return b, whole && same && t.proves(b)
	case entry.PiCallBlock:
		b.ID = sentID(b.ID)
		if !strings.HasPrefix(strings.TrimSpace(string(b.Arguments)), "{") || !json.Valid(b.Arguments) {
			b.Arguments = json.RawMessage("{}")
		}
		return b, whole
	}
	return b, false
}

// notInIDs are the characters that some provider refuses in the id of a call.
var notInIDs = lazyregexp.New(`[^a-zA-Z0-9_-]`)

// sentID returns a call's id in a form that every provider accepts. The part after a | is pi's addition for responses.
func sentID(id string) string {
	id, _, _ = strings.Cut(id, "|")
	id = notInIDs.ReplaceAllString(id, "_")
	return id[:min(len(id), 40)]
}

// proves reports whether thinking is sent back: with a proof that the dialect accepts, or without one in a dialect that
// has no proofs.
func (t translator) proves(b entry.PiBlock) bool {
	switch t.endpoint.Dialect {
	case Messages:
		return b.ThinkingSignature != ""
	case Gemini:
		signature, err := base64.StdEncoding.DecodeString(b.ThinkingSignature)
		return err == nil && len(signature) > 0
	case Responses:
		_, ok := readReasoning(b)
		return ok
	}
	return t.endpoint.Provider != OpenRouter && b.Thinking != ""
}
