package model

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file is the dialect [Chat]: OpenAI's chat completions, as most servers speak it, and OpenRouter's additions to it.

func writeChat(p prompt) any {
	isRouter := p.endpoint.Provider == OpenRouter
	marked := isRouter && strings.HasPrefix(p.model, "anthropic/")
	body := object{"model": p.model, "messages": chatMessages(p, marked), "stream": true, "stream_options": object{"include_usage": true}}
	if p.limit > 0 {
		name := "max_tokens"
		if reasons(p.model) {
			name = "max_completion_tokens"
		}
		body[name] = p.limit
	}
	if len(p.tools) > 0 {
		body["tools"] = chatTools(p.tools)
	}
	if isRouter {
		body["usage"] = object{"include": true}
	}
	switch t := p.thinking; {
	case t.asked == entry.EffortDefault:
	case isRouter && t.asked == entry.EffortOff:
		body["reasoning"] = object{"enabled": false}
	case isRouter:
		body["reasoning"] = object{"effort": t.level}
	default:
		body["reasoning_effort"] = t.level
	}
	return body
}

func chatMessages(p prompt, marked bool) (messages []object) {
	if p.system != "" {
		messages = append(messages, object{"role": "system", "content": chatContent([]entry.PiBlock{entry.PiText(p.system)}, marked)})
	}
	for _, m := range p.messages {
		messages = append(messages, chatMessage(m, marked && m.cached))
	}
	return messages
}

func chatTools(functions []function) (tools []object) {
	for _, f := range functions {
		tools = append(tools, object{"type": "function", "function": object{
			"name": f.name, "description": f.description, "parameters": f.schema, "strict": false}})
	}
	return tools
}

// chatContent writes a message's content: a single text as a string, anything else in parts. marked marks the end of
// the cached part.
func chatContent(blocks []entry.PiBlock, marked bool) any {
	if len(blocks) == 1 && blocks[0].Type == entry.PiTextBlock && !marked {
		return blocks[0].Text
	}
	var parts []object
	for _, b := range blocks {
		if b.Type == entry.PiImageBlock {
			parts = append(parts, object{"type": "image_url", "image_url": object{"url": dataURL(b)}})
		} else {
			parts = append(parts, object{"type": "text", "text": b.Text})
		}
	}
	if marked {
		parts[len(parts)-1]["cache_control"] = cacheMark
	}
	return parts
}

func chatMessage(m message, marked bool) object {
	var written object
	switch m.role {
	case userRole:
		return object{"role": "user", "content": chatContent(m.blocks, marked)}
	case toolRole:
		written = object{"role": "tool", "tool_call_id": m.call, "content": m.text()}
	default:
		written = chatAnswer(m)
	}
	if marked { // only user messages have parts at all servers
		written["cache_control"] = cacheMark
	}
	return written
}

func chatAnswer(m message) object {
	written := object{"role": "assistant"}
	var thoughts []string
	var calls []object
	for _, b := range m.blocks {
		switch b.Type {
		case entry.PiThinkingBlock:
			thoughts = append(thoughts, b.Thinking)
		case entry.PiCallBlock:
			calls = append(calls, object{"id": b.ID, "type": "function", "function": object{"name": b.Name, "arguments": string(b.Arguments)}})
		}
	}
	if text := m.text(); text != "" {
		written["content"] = text
	}
	if calls != nil {
		written["tool_calls"] = calls
	}
	if thoughts != nil {
		written["reasoning_content"] = strings.Join(thoughts, "\n")
	}
	return written
}

// chatReader reads chunks of an answer. It has one text, which ends when a call begins, and one thought, which ends
// when anything else begins.
type chatReader struct {
	*stream
	calls  map[int]bool // by index: whether arguments were written
	reason string
}

func newChatReader(s *stream) reader { return &chatReader{stream: s, calls: map[int]bool{}} }

func (c *chatReader) read(data []byte) (finish, error) {
	var chunk struct {
		Choices []struct {
			Delta        chatDelta `json:"delta"`
			FinishReason string    `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := decode(data, &chunk); err != nil {
		return "", err
	}
	for _, choice := range chunk.Choices {
		c.reason = cmp.Or(choice.FinishReason, c.reason)
		if err := c.take(choice.Delta); err != nil {
			return "", err
		}
	}
	return "", nil // its usage may follow
}

// chatDelta is the content of a chunk. Servers have two names for thinking; OpenRouter has a third with proofs, which
// are not sent back.
type chatDelta struct {
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
	Details          []struct {
		Text    string `json:"text"`
		Summary string `json:"summary"`
	} `json:"reasoning_details"`
	ToolCalls []chatCall `json:"tool_calls"`
}

// chatCall is a piece of a call.
type chatCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// thinking returns the chunk's piece of thinking.
func (d chatDelta) thinking() string {
	text := cmp.Or(d.ReasoningContent, d.Reasoning)
	if text == "" {
		for _, detail := range d.Details {
			text += cmp.Or(detail.Text, detail.Summary)
		}
	}
	return text
}

func (c *chatReader) take(d chatDelta) error {
	if err := c.think("", d.thinking()); err != nil {
		return err
	}
	if d.Content != "" || len(d.ToolCalls) > 0 {
		c.thought("")
	}
	if err := c.say("", d.Content); err != nil {
		return err
	}
	for _, call := range d.ToolCalls {
		if err := c.takeCall(call); err != nil {
			return err
		}
	}
	return nil
}

// takeCall takes a piece of a call.
func (c *chatReader) takeCall(call chatCall) error {
	c.said("")
	key := strconv.Itoa(call.Index)
	if _, begun := c.calls[call.Index]; !begun {
		switch {
		case call.Function.Name == "" && call.Function.Arguments == "": // Ollama sends some empty ones
			return nil
		case call.Type != "" && call.Type != "function":
			return outOfBounds("it calls what is not a function")
		}
		c.calls[call.Index] = false
		if err := c.call(key, call.ID, call.Function.Name); err != nil {
			return err
		}
	}
	if call.Function.Arguments != "" {
		c.calls[call.Index] = true
	}
	return c.argue(key, call.Function.Arguments)
}

// end finishes the calls of an answer that was not cut. Some servers do not say why an answer with calls ends; it is
// then complete if all arguments are.
func (c *chatReader) end() finish {
	switch c.reason {
	case "length":
		return endLength
	case "content_filter":
		return endFilter
	case "insufficient_system_resource", "error":
		return endError
	case "":
		if len(c.calls) == 0 || !c.isWhole() {
			return ""
		}
	}
	for _, index := range slices.Sorted(maps.Keys(c.calls)) {
		if c.called(strconv.Itoa(index), "") != nil {
			return endLength
		}
	}
	return endPlain
}

// isWhole reports whether the arguments of all calls are JSON.
func (c *chatReader) isWhole() bool {
	for index, written := range c.calls {
		if at := c.open["call"+strconv.Itoa(index)]; !written || !json.Valid([]byte(c.text[at].String())) {
			return false
		}
	}
	return true
}
