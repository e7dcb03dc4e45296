package model

import (
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file is the dialect [Responses]: OpenAI's own.

func writeResponses(p prompt) any {
	body := object{"model": p.model, "input": responsesInput(p), "stream": true, "store": false}
	if p.limit > 0 {
		body["max_output_tokens"] = p.limit
	}
	if len(p.tools) > 0 {
		var tools []object
		for _, f := range p.tools {
			tools = append(tools, object{"type": "function", "name": f.name, "description": f.description, "parameters": f.schema, "strict": false})
		}
		body["tools"] = tools
	}
	t, thinks := p.thinking, responsesThinks(p.model)
	if t.thinks || !t.known && thinks && !isEarly(p.model) {
		// The provider stores nothing, so it must return the thinking, encrypted. Other models refuse this field.
		body["include"] = []string{"reasoning.encrypted_content"}
	}
	if t.asked != entry.EffortDefault && thinks {
		body["reasoning"] = object{"effort": t.level, "summary": "auto"}
	}
	return body
}

// isEarly reports whether a model is one of the first thinking models, which lack parts of the dialect.
func isEarly(id string) bool {
	return strings.Contains(id, "o1-mini") || strings.Contains(id, "o1-preview")
}

func responsesInput(p prompt) (input []any) {
	switch {
	case p.system == "", isEarly(p.model): // early models accept no system prompt
	case responsesThinks(p.model):
		input = append(input, object{"role": "developer", "content": p.system})
	default:
		input = append(input, object{"role": "system", "content": p.system})
	}
	for _, m := range p.messages {
		switch m.role {
		case userRole:
			input = append(input, object{"role": "user", "content": responsesParts(m.blocks)})
		case toolRole:
			input = append(input, object{"type": "function_call_output", "call_id": m.call, "output": m.text()})
		case modelRole:
			input = append(input, responsesAnswer(m.blocks)...)
		}
	}
	return input
}

func responsesParts(blocks []entry.PiBlock) (parts []object) {
	for _, b := range blocks {
		if b.Type == entry.PiImageBlock {
			parts = append(parts, object{"type": "input_image", "image_url": dataURL(b)})
		} else {
			parts = append(parts, object{"type": "input_text", "text": b.Text})
		}
	}
	return parts
}

func responsesAnswer(blocks []entry.PiBlock) (items []any) {
	for _, b := range blocks {
		switch b.Type {
		case entry.PiTextBlock:
			items = append(items, object{"role": "assistant", "content": b.Text})
		case entry.PiCallBlock:
			items = append(items, object{"type": "function_call", "call_id": b.ID, "name": b.Name, "arguments": string(b.Arguments)})
		case entry.PiThinkingBlock:
			if item, ok := readReasoning(b); ok {
				items = append(items, item)
			}
		}
	}
	return items
}

// responsesReader reads the events of a response, whose items have an index.
type responsesReader struct {
	*stream
	kinds    map[int]string // of the items that are being written
	hasCalls bool
}

func newResponsesReader(s *stream) reader {
	return &responsesReader{stream: s, kinds: map[int]string{}}
}

// responsesEvent has the fields of all events that matter.
type responsesEvent struct {
	Type  string `json:"type"`
	Index int    `json:"output_index"`
	Delta string `json:"delta"`
	Item  struct {
		reasoningItem
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"item"`
	Response struct {
		Incomplete struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
	} `json:"response"`
}

func (r *responsesReader) read(data []byte) (finish, error) {
	var e responsesEvent
	if err := decode(data, &e); err != nil {
		return "", err
	}
	key := strconv.Itoa(e.Index)
	kind := r.kinds[e.Index]
	switch e.Type {
	case "response.output_item.added":
		r.kinds[e.Index] = e.Item.Type
		if e.Item.Type == "function_call" {
			return "", r.call(key, e.Item.CallID, e.Item.Name)
		}
	case "response.output_text.delta":
		return "", r.say(key, e.Delta)
	case "response.function_call_arguments.delta":
		return "", r.argue(key, e.Delta)
	case "response.reasoning_summary_part.added":
		return "", r.reason(key, kind, "\n")
	case "response.reasoning_summary_text.delta":
		return "", r.reason(key, kind, e.Delta)
	case "response.output_item.done":
		return "", r.endItem(e, key, kind)
	case "response.completed", "response.incomplete":
		return r.finish(e.Response.Incomplete.Reason), nil
	case "response.failed", "error":
		return "", errReported
	}
	return "", nil
}

// reason adds to the thoughts of an item for reasoning.
func (r *responsesReader) reason(key, kind, text string) error {
	if kind != "reasoning" {
		return nil
	}
	return r.think(key, text)
}

// endItem ends an item.
func (r *responsesReader) endItem(e responsesEvent, key, kind string) error {
	delete(r.kinds, e.Index)
	switch {
	case kind == "function_call" && e.Item.Type == kind:
		r.hasCalls = true
		return r.called(key, e.Item.Arguments)
	case kind == "reasoning" && e.Item.Type == kind:
		err := r.prove(key, e.Item.signature(), false)
		r.thought(key)
		return err
	}
	r.said(key)
	return nil
}

func (r *responsesReader) finish(reason string) finish {
	switch {
	case reason == "max_tokens" || reason == "max_output_tokens":
		return endLength
	case reason == "content_filter" && !r.hasCalls:
		return endFilter
	}
	return endPlain
}

// end is not called for a complete response.
func (r *responsesReader) end() finish { return "" }
