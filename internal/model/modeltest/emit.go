package modeltest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

type list []any

// emitter writes one answer in a dialect.
type emitter struct {
	request *Request
	reply   Reply
	usage   Usage
	// send writes an event, and next begins a part of the answer. They return false once nobody reads the answer.
	send func(event string, data any) bool
	next func() bool
}

// pieces splits a text after its spaces, as models write in tokens.
func (e *emitter) pieces(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}

// write passes the pieces of a text to one, and repeats that if the answer is endless.
func (e *emitter) write(text string, one func(piece string) bool) bool {
	for {
		for _, piece := range e.pieces(text) {
			if piece != "" && (!e.next() || !one(piece)) {
				return false
			}
		}
		if !e.reply.Endless || text == "" {
			return true
		}
	}
}

// halves splits the arguments of a call, which are sent in several parts.
func halves(arguments string) []string {
	if len(arguments) < 2 {
		return []string{arguments}
	}
	return []string{arguments[:len(arguments)/2], arguments[len(arguments)/2:]}
}

// chat writes chunks of chat/completions.
func (e *emitter) chat() {
	id := fmt.Sprintf("chatcmpl-%d", e.request.Seen+1)
	chunk := func(choices list, usage any) object {
		return object{"id": id, "object": "chat.completion.chunk", "created": 1795192109, "model": e.request.Model,
			"service_tier": "default", "system_fingerprint": nil, "choices": choices, "usage": usage}
	}
	delta := func(delta object, finish any) bool {
		return e.send("", chunk(list{object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}, nil))
	}
	if !delta(object{"role": "assistant", "content": "", "refusal": nil}, nil) {
		return
	}
	if !e.write(e.reply.Thinking, func(piece string) bool { return delta(object{"reasoning_content": piece}, nil) }) ||
		!e.write(e.reply.Text, func(piece string) bool { return delta(object{"content": piece}, nil) }) ||
		!e.write(e.reply.Refusal, func(piece string) bool { return delta(object{"refusal": piece}, nil) }) {
		return
	}
	for i, call := range e.reply.Calls {
		if !e.next() || !delta(object{"tool_calls": list{object{"index": i, "id": call.ID, "type": "function",
			"function": object{"name": call.Name, "arguments": ""}}}}, nil) {
			return
		}
		for _, half := range halves(call.Arguments) {
			if !e.next() || !delta(object{"tool_calls": list{object{"index": i, "function": object{"arguments": half}}}}, nil) {
				return
			}
		}
	}
	if !e.next() {
		return
	}
	if e.reply.Fail != nil {
		e.send("", wireError(Chat, *e.reply.Fail))
		return
	}
	finish := "stop"
	switch {
	case e.reply.Stop == StopLength:
		finish = "length"
	case e.reply.Stop == StopFilter:
		finish = "content_filter"
	case len(e.reply.Calls) > 0 && e.reply.Stop != StopPlain:
		finish = "tool_calls"
	}
	if !delta(object{}, finish) {
		return
	}
	if strings.Contains(string(e.request.Body), `"include_usage":true`) {
		u, prompt := e.usage, e.usage.Input+e.usage.CacheRead
		e.send("", chunk(list{}, object{"prompt_tokens": prompt, "completion_tokens": u.Output, "total_tokens": prompt + u.Output,
			"prompt_tokens_details":     object{"cached_tokens": u.CacheRead, "audio_tokens": 0},
			"completion_tokens_details": object{"reasoning_tokens": u.Reasoning, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}))
	}
	e.send("", "[DONE]")
}

// messages writes the events of Anthropic's messages.
func (e *emitter) messages() {
	event := func(data object) bool { return e.send(data["type"].(string), data) }
	u := e.usage
	if !event(object{"type": "message_start", "message": object{"id": fmt.Sprintf("msg_%d", e.request.Seen+1), "type": "message",
		"role": "assistant", "model": e.request.Model, "content": list{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": u.Input, "cache_creation_input_tokens": u.CacheWrite, "cache_read_input_tokens": u.CacheRead, "output_tokens": 1}}}) {
		return
	}
	index := -1
	open := func(block object) bool {
		index++
		return event(object{"type": "content_block_start", "index": index, "content_block": block})
	}
	delta := func(delta object) bool {
		return event(object{"type": "content_block_delta", "index": index, "delta": delta})
	}
	stop := func() bool { return event(object{"type": "content_block_stop", "index": index}) }
	if e.reply.Thinking != "" {
		if !open(object{"type": "thinking", "thinking": "", "signature": ""}) || !e.write(e.reply.Thinking, func(piece string) bool {
			return delta(object{"type": "thinking_delta", "thinking": piece})
		}) || !delta(object{"type": "signature_delta", "signature": e.proof()}) || !stop() {
			return
		}
	} else if e.reply.Redacted {
		if !open(object{"type": "redacted_thinking", "data": e.proof()}) || !stop() {
			return
		}
	}
	if !event(object{"type": "ping"}) {
		return
	}
	if e.reply.Text != "" {
		if !open(object{"type": "text", "text": ""}) || !e.write(e.reply.Text, func(piece string) bool {
			return delta(object{"type": "text_delta", "text": piece})
		}) || (e.reply.Fail == nil && !stop()) {
			return
		}
	}
	for _, call := range e.reply.Calls {
		if !e.next() || !open(object{"type": "tool_use", "id": call.ID, "name": call.Name, "input": object{}}) ||
			!delta(object{"type": "input_json_delta", "partial_json": ""}) {
			return
		}
		for _, half := range halves(call.Arguments) {
			if !e.next() || !delta(object{"type": "input_json_delta", "partial_json": half}) {
				return
			}
		}
		if !stop() {
			return
		}
	}
	if !e.next() {
		return
	}
	if e.reply.Fail != nil {
		e.send("error", wireError(Messages, *e.reply.Fail))
		return
	}
	reason := "end_turn"
	switch {
	case e.reply.Stop == StopLength:
		reason = "max_tokens"
	case e.reply.Stop == StopFilter || e.reply.Refusal != "":
		reason = "refusal"
	case len(e.reply.Calls) > 0 && e.reply.Stop != StopPlain:
		reason = "tool_use"
	}
	if event(object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": u.Output}}) {
		event(object{"type": "message_stop"})
	}
}

// proof returns the proof of the reply's thinking.
func (e *emitter) proof() string { return cmp.Or(e.reply.Proof, DefaultProof) }

// responses writes the events of OpenAI's responses.
func (e *emitter) responses() {
	sequence := -1
	event := func(kind string, data object) bool {
		sequence++
		data["type"], data["sequence_number"] = kind, sequence
		return e.send(kind, data)
	}
	output := list{}
	response := func(status string) object {
		return object{"id": fmt.Sprintf("resp_%d", e.request.Seen+1), "object": "response", "created_at": 1795192109, "status": status,
			"model": e.request.Model, "output": output, "error": nil, "incomplete_details": nil, "usage": nil, "tools": list{},
			"parallel_tool_calls": true, "store": false}
	}
	if !event("response.created", object{"response": response("in_progress")}) || !event("response.in_progress", object{"response": response("in_progress")}) {
		return
	}
	// item writes an item of the output: its beginning, its parts, and the complete item.
	item := func(begin, end object, parts func(id string, index int) bool) bool {
		index := len(output)
		id := begin["id"].(string)
		if !event("response.output_item.added", object{"output_index": index, "item": begin}) || !parts(id, index) {
			return false
		}
		output = append(output, end)
		return event("response.output_item.done", object{"output_index": index, "item": end})
	}
	if text := e.reply.Thinking; text != "" || e.reply.Redacted {
		summary := list{}
		if text != "" {
			summary = list{object{"type": "summary_text", "text": text}}
		}
		begun := object{"id": "rs_1", "type": "reasoning", "summary": list{}}
		done := object{"id": "rs_1", "type": "reasoning", "summary": summary}
		if e.request.Encrypted {
			begun["encrypted_content"], done["encrypted_content"] = "not yet", e.proof()
		}
		if !item(begun, done, func(id string, index int) bool {
			if text == "" {
				return true
			}
			at := func(more object) object {
				more["item_id"], more["output_index"], more["summary_index"] = id, index, 0
				return more
			}
			return event("response.reasoning_summary_part.added", at(object{"part": object{"type": "summary_text", "text": ""}})) &&
				e.write(text, func(piece string) bool {
					return event("response.reasoning_summary_text.delta", at(object{"delta": piece}))
				}) && event("response.reasoning_summary_text.done", at(object{"text": text})) &&
				event("response.reasoning_summary_part.done", at(object{"part": summary[0]}))
		}) {
			return
		}
	}
	if text := e.reply.Text + e.reply.Refusal; text != "" {
		kind, field, empty := "output_text", "text", object{"type": "output_text", "text": "", "annotations": list{}}
		if e.reply.Refusal != "" {
			kind, field, empty = "refusal", "refusal", object{"type": "refusal", "refusal": ""}
		}
		part := object{"type": kind, field: text}
		message := func(status string, content list) object {
			return object{"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content}
		}
		if !item(message("in_progress", list{}), message("completed", list{part}), func(id string, index int) bool {
			at := func(more object) object {
				more["item_id"], more["output_index"], more["content_index"] = id, index, 0
				return more
			}
			return event("response.content_part.added", at(object{"part": empty})) &&
				e.write(text, func(piece string) bool {
					return event("response."+kind+".delta", at(object{"delta": piece}))
				}) && event("response."+kind+".done", at(object{field: text})) && event("response.content_part.done", at(object{"part": part}))
		}) {
			return
		}
	}
	for i, call := range e.reply.Calls {
		begun := object{"id": fmt.Sprintf("fc_%d", i), "type": "function_call", "status": "in_progress", "call_id": call.ID, "name": call.Name, "arguments": ""}
		done := object{"id": begun["id"], "type": "function_call", "status": "completed", "call_id": call.ID, "name": call.Name, "arguments": call.Arguments}
		if !e.next() || !item(begun, done, func(id string, index int) bool {
			for _, half := range halves(call.Arguments) {
				if !e.next() || !event("response.function_call_arguments.delta", object{"item_id": id, "output_index": index, "delta": half}) {
					return false
				}
			}
			return event("response.function_call_arguments.done", object{"item_id": id, "output_index": index, "arguments": call.Arguments})
		}) {
			return
		}
	}
	if !e.next() {
		return
	}
	if fail := e.reply.Fail; fail != nil {
		failed := response("failed")
		failed["error"] = object{"code": fail.Code, "message": fail.Message}
		event("response.failed", object{"response": failed})
		return
	}
	status, details := "completed", any(nil)
	switch e.reply.Stop {
	case StopLength:
		status, details = "incomplete", object{"reason": "max_output_tokens"}
	case StopFilter:
		status, details = "incomplete", object{"reason": "content_filter"}
	}
	u, input := e.usage, e.usage.Input+e.usage.CacheRead
	last := response(status)
	last["incomplete_details"] = details
	last["usage"] = object{"input_tokens": input, "input_tokens_details": object{"cached_tokens": u.CacheRead},
		"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": u.Reasoning}, "total_tokens": input + u.Output}
	event("response."+status, object{"response": last})
}

// gemini writes chunks of Google's generateContent.
func (e *emitter) gemini() {
	chunk := func(parts list, finish string) bool {
		candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
		if finish != "" {
			candidate["finishReason"] = finish
		}
		u := e.usage
		return e.send("", object{"candidates": list{candidate}, "modelVersion": e.request.Model, "responseId": fmt.Sprintf("resp_%d", e.request.Seen+1),
			"usageMetadata": object{"promptTokenCount": u.Input + u.CacheRead, "cachedContentTokenCount": u.CacheRead,
				"candidatesTokenCount": u.Output - u.Reasoning, "thoughtsTokenCount": u.Reasoning, "totalTokenCount": u.Input + u.CacheRead + u.Output}})
	}
	if !e.write(e.reply.Thinking, func(piece string) bool { return chunk(list{object{"text": piece, "thought": true}}, "") }) ||
		!e.write(e.reply.Text+e.reply.Refusal, func(piece string) bool { return chunk(list{object{"text": piece}}, "") }) {
		return
	}
	for _, call := range e.reply.Calls {
		var arguments any = object{}
		if json.Unmarshal([]byte(call.Arguments), &arguments) != nil {
			arguments = object{"broken": call.Arguments} // in this dialect, arguments are always objects
		}
		if !e.next() || !chunk(list{object{"functionCall": object{"id": call.ID, "name": call.Name, "args": arguments}, "thoughtSignature": e.proof()}}, "") {
			return
		}
	}
	if !e.next() {
		return
	}
	if e.reply.Fail != nil {
		e.send("", wireError(Gemini, *e.reply.Fail))
		return
	}
	finish := map[Stop]string{"": "STOP", StopPlain: "STOP", StopLength: "MAX_TOKENS", StopFilter: "SAFETY"}[e.reply.Stop]
	if e.reply.Refusal != "" {
		finish = "SAFETY"
	}
	chunk(list{object{"text": ""}}, finish)
}
