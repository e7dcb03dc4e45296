package model

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file is the dialect [Messages]: Anthropic's.

func writeMessages(p prompt) any {
	body := object{"model": p.model, "max_tokens": p.limit, "stream": true, "messages": messagesOf(p.messages)}
	if p.system != "" {
		body["system"] = []object{{"type": "text", "text": p.system, "cache_control": cacheMark}}
	}
	if len(p.tools) > 0 {
		var tools []object
		for _, f := range p.tools { // some other keywords are refused at the top of a schema
			schema := object{"type": "object", "properties": f.schema["properties"]}
			if required := f.schema["required"]; required != nil {
				schema["required"] = required
			}
			tools = append(tools, object{"name": f.name, "description": f.description, "input_schema": schema})
		}
		body["tools"] = tools
	}
	if think, effort := p.thinking.messages(p.model); think != nil { // without this field, a model does not think
		body["thinking"] = think
		if effort != "" {
			body["output_config"] = object{"effort": effort}
		}
	}
	return body
}

// messages returns the thinking field for a model of Anthropic, and the effort for a model that chooses its budget
// itself. The field is nil if the request says nothing about thinking.
func (t thinking) messages(id string) (think object, effort string) {
	hides := hidesThinking(id)
	switch {
	case t.asked == entry.EffortDefault || t.asked == entry.EffortOff:
		return nil, ""
	case t.adapts:
		think, effort = object{"type": "adaptive"}, t.level
	case t.budget < leastBudget || !t.begins:
		return nil, ""
	case hides: // it accepts no budget
		think = object{"type": "adaptive"}
	default:
		think = object{"type": "enabled", "budget_tokens": t.budget}
	}
	if hides {
		think["display"] = "summarized"
	}
	return think, effort
}

// messagesOf writes messages. It merges consecutive messages of one side.
func messagesOf(messages []message) (written []object) {
	var blocks []object
	for i, m := range messages {
		blocks = append(blocks, messagesBlocks(m)...)
		isModel := m.role == modelRole
		if i+1 < len(messages) && isModel == (messages[i+1].role == modelRole) {
			continue
		}
		role := "user"
		if isModel {
			role = "assistant"
		}
		written = append(written, object{"role": role, "content": blocks})
		blocks = nil
	}
	return written
}

func messagesBlocks(m message) (blocks []object) {
	thinks := false
	for _, b := range m.blocks {
		thinks = b.Type == entry.PiThinkingBlock
		switch b.Type {
		case entry.PiTextBlock:
			blocks = append(blocks, object{"type": "text", "text": b.Text})
		case entry.PiImageBlock:
			blocks = append(blocks, object{"type": "image", "source": object{"type": "base64", "media_type": b.MIMEType, "data": b.Data}})
		case entry.PiThinkingBlock:
			if b.Redacted {
				blocks = append(blocks, object{"type": "redacted_thinking", "data": b.ThinkingSignature})
			} else {
				blocks = append(blocks, object{"type": "thinking", "thinking": b.Thinking, "signature": b.ThinkingSignature})
			}
		case entry.PiCallBlock:
			blocks = append(blocks, object{"type": "tool_use", "id": b.ID, "name": b.Name, "input": b.Arguments})
		}
	}
	if m.role == toolRole {
		result := object{"type": "tool_result", "tool_use_id": m.call, "content": blocks}
		if m.failed {
			result["is_error"] = true
		}
		blocks = []object{result}
	}
	if m.cached && !thinks { // thinking cannot be marked
		blocks[len(blocks)-1]["cache_control"] = cacheMark
	}
	return blocks
}

// messagesReader reads the events of a message, whose blocks have an index.
type messagesReader struct {
	*stream
	kinds map[int]string // of the open blocks
	input map[int]string // the arguments in the start of a call
	ends  finish
}

func newMessagesReader(s *stream) reader {
	return &messagesReader{stream: s, kinds: map[int]string{}, input: map[int]string{}}
}

// messagesEvent has the fields of all events that matter.
type messagesEvent struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block struct {
		Type     string          `json:"type"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		Data     string          `json:"data"`
	} `json:"content_block"`
	Delta struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		Thinking   string `json:"thinking"`
		Signature  string `json:"signature"`
		JSON       string `json:"partial_json"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
}

func (m *messagesReader) read(data []byte) (finish, error) {
	var e messagesEvent
	if err := decode(data, &e); err != nil {
		return "", err
	}
	key := strconv.Itoa(e.Index)
	switch e.Type {
	case "content_block_start":
		return "", m.begin(e, key)
	case "content_block_delta":
		return "", m.piece(e, key)
	case "content_block_stop":
		return "", m.stop(e.Index, key)
	case "message_delta":
		if e.Delta.StopReason != "" {
			m.ends = messagesFinish(e.Delta.StopReason)
		}
	case "message_stop":
		if m.ends == "" {
			return "", io.ErrUnexpectedEOF
		}
		return m.ends, nil
	}
	return "", nil
}

// piece reads a piece of a block.
func (m *messagesReader) piece(e messagesEvent, key string) error {
	switch e.Delta.Type {
	case "text_delta":
		return m.say(key, e.Delta.Text)
	case "thinking_delta":
		return m.think(key, e.Delta.Thinking)
	case "signature_delta":
		return m.prove(key, e.Delta.Signature, false)
	case "input_json_delta":
		return m.argue(key, e.Delta.JSON)
	}
	return nil
}

// stop ends a block.
func (m *messagesReader) stop(index int, key string) error {
	kind, input := m.kinds[index], m.input[index]
	delete(m.kinds, index)
	delete(m.input, index)
	switch kind {
	case "text":
		m.said(key)
	case "thinking", "redacted_thinking":
		m.thought(key)
	case "tool_use":
		return m.called(key, input)
	}
	return nil
}

// begin begins a block. Unknown kinds, such as tools that the provider runs, are left out.
func (m *messagesReader) begin(e messagesEvent, key string) error {
	m.kinds[e.Index] = e.Block.Type
	switch e.Block.Type {
	case "text":
		return m.say(key, e.Block.Text)
	case "thinking":
		return m.think(key, e.Block.Thinking)
	case "redacted_thinking":
		return m.prove(key, e.Block.Data, true)
	case "tool_use":
		if input := string(e.Block.Input); input != "{}" && input != "null" {
			if err := m.grow(stored(input)); err != nil {
				return err
			}
			m.input[e.Index] = input
		}
		return m.call(key, e.Block.ID, e.Block.Name)
	}
	return nil
}

func messagesFinish(reason string) finish {
	switch reason {
	case "max_tokens", "model_context_window_exceeded":
		return endLength
	case "refusal", "content_filtered", "guardrail_intervened":
		return endFilter
	}
	return endPlain
}

// end is not called for a complete message.
func (m *messagesReader) end() finish { return "" }
