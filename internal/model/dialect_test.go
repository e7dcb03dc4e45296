package model_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// TestRequestsOnTheWire shows the whole of what is sent in each dialect: the system prompt, a tool, an image, an answer with
// thinking and two calls, their results, of which one failed, and the marks of what is cached.
func TestRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	image := entry.PiBlock{Type: entry.PiImageBlock, Data: base64.StdEncoding.EncodeToString([]byte("cat")), MIMEType: "image/png"}
	call := func(id, arguments string) entry.PiBlock {
		return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: "look", Arguments: json.RawMessage(arguments)}
	}
	for name, c := range map[string]struct {
		endpoint model.Endpoint
		model    string
		proof    string
		want     string
	}{
		"messages": {model.Endpoint{Provider: model.Anthropic}, "claude-sonnet-4-5", "cHJv", `{
			"model": "claude-sonnet-4-5", "max_tokens": 9000, "stream": true,
			"thinking": {"type": "enabled", "budget_tokens": 2048},
			"system": [{"type": "text", "text": "Be <brief>.", "cache_control": {"type": "ephemeral"}}],
			"tools": [{"name": "look", "description": "looks", "input_schema": {"type": "object", "required": ["at"],
				"properties": {"at": {"type": "string", "description": "where"}, "n": {"type": "array", "items": {"type": "integer"}}}}}],
			"messages": [
				{"role": "user", "content": [{"type": "text", "text": "Well?"},
					{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y2F0"}, "cache_control": {"type": "ephemeral"}}]},
				{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "cHJv"}, {"type": "text", "text": "I look."},
					{"type": "tool_use", "id": "a", "name": "look", "input": {"at": "<b>", "n": [12345678901234567890]}},
					{"type": "tool_use", "id": "b_1", "name": "look", "input": {}}]},
				{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
						"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y2F0"}}, {"type": "text", "text": "seen"}]},
					{"type": "tool_result", "tool_use_id": "b_1", "is_error": true, "content": [{"type": "text", "text": "dark"}]},
					{"type": "text", "text": "So?", "cache_control": {"type": "ephemeral"}}]}]}`},
		"chat": {model.Endpoint{Provider: model.Compatible, Name: "mine"}, "some-model", "", `{
			"model": "some-model", "max_tokens": 9000, "reasoning_effort": "low", "stream": true, "stream_options": {"include_usage": true},
			"tools": [{"type": "function", "function": {"name": "look", "description": "looks", "strict": false, "parameters": {"type": "object", "required": ["at"],
				"properties": {"at": {"type": "string", "description": "where"}, "n": {"type": "array", "items": {"type": "integer"}}}}}}],
			"messages": [{"role": "system", "content": "Be <brief>."},
				{"role": "user", "content": [{"type": "text", "text": "Well?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,Y2F0"}}]},
				{"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
					{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"<b>\",\"n\":[12345678901234567890]}"}},
					{"id": "b_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
				{"role": "tool", "tool_call_id": "a", "content": "seen"},
				{"role": "tool", "tool_call_id": "b_1", "content": "dark"},
				{"role": "user", "content": [{"type": "text", "text": "the image that belongs to the result of the tool \"look\":"},
					{"type": "image_url", "image_url": {"url": "data:image/png;base64,Y2F0"}}]},
				{"role": "user", "content": "So?"}]}`},
		"openrouter": {model.Endpoint{Provider: model.OpenRouter}, "anthropic/claude-sonnet-4.5", "", `{
			"model": "anthropic/claude-sonnet-4.5", "max_tokens": 9000, "reasoning": {"effort": "low"}, "usage": {"include": true},
			"stream": true, "stream_options": {"include_usage": true},
			"tools": [{"type": "function", "function": {"name": "look", "description": "looks", "strict": false, "parameters": {"type": "object", "required": ["at"],
				"properties": {"at": {"type": "string", "description": "where"}, "n": {"type": "array", "items": {"type": "integer"}}}}}}],
			"messages": [{"role": "system", "content": [{"type": "text", "text": "Be <brief>.", "cache_control": {"type": "ephemeral"}}]},
				{"role": "user", "content": [{"type": "text", "text": "Well?"},
					{"type": "image_url", "image_url": {"url": "data:image/png;base64,Y2F0"}, "cache_control": {"type": "ephemeral"}}]},
				{"role": "assistant", "content": "I look.", "tool_calls": [
					{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"<b>\",\"n\":[12345678901234567890]}"}},
					{"id": "b_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
				{"role": "tool", "tool_call_id": "a", "content": "seen"},
				{"role": "tool", "tool_call_id": "b_1", "content": "dark"},
				{"role": "user", "content": [{"type": "text", "text": "the image that belongs to the result of the tool \"look\":"},
					{"type": "image_url", "image_url": {"url": "data:image/png;base64,Y2F0"}}]},
				{"role": "user", "content": [{"type": "text", "text": "So?", "cache_control": {"type": "ephemeral"}}]}]}`},
		"responses": {model.Endpoint{Provider: model.OpenAI, Dialect: model.Responses}, "gpt-5.1",
			`{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"enc"}`, `{
			"model": "gpt-5.1", "max_output_tokens": 9000, "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
			"reasoning": {"effort": "low", "summary": "auto"},
			"tools": [{"type": "function", "name": "look", "description": "looks", "strict": false, "parameters": {"type": "object", "required": ["at"],
				"properties": {"at": {"type": "string", "description": "where"}, "n": {"type": "array", "items": {"type": "integer"}}}}}],
			"input": [{"role": "developer", "content": "Be <brief>."},
				{"role": "user", "content": [{"type": "input_text", "text": "Well?"}, {"type": "input_image", "image_url": "data:image/png;base64,Y2F0"}]},
				{"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "enc"},
				{"role": "assistant", "content": "I look."},
				{"type": "function_call", "call_id": "a", "name": "look", "arguments": "{\"at\":\"<b>\",\"n\":[12345678901234567890]}"},
				{"type": "function_call", "call_id": "b_1", "name": "look", "arguments": "{}"},
				{"type": "function_call_output", "call_id": "a", "output": "seen"},
				{"type": "function_call_output", "call_id": "b_1", "output": "dark"},
				{"role": "user", "content": [{"type": "input_text", "text": "the image that belongs to the result of the tool \"look\":"},
					{"type": "input_image", "image_url": "data:image/png;base64,Y2F0"}]},
				{"role": "user", "content": [{"type": "input_text", "text": "So?"}]}]}`},
		"gemini": {model.Endpoint{Provider: model.Google}, "gemini-3-pro-preview", "cHJv", `{
			"generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "LOW"}},
			"systemInstruction": {"role": "user", "parts": [{"text": "Be <brief>."}]},
			"tools": [{"functionDeclarations": [{"name": "look", "description": "looks", "parameters": {"type": "OBJECT", "required": ["at"],
				"properties": {"at": {"type": "STRING", "description": "where"}, "n": {"type": "ARRAY", "items": {"type": "INTEGER"}}}}}]}],
			"contents": [{"role": "user", "parts": [{"text": "Well?"}, {"inlineData": {"mimeType": "image/png", "data": "Y2F0"}}]},
				{"role": "model", "parts": [{"text": "I look.", "thoughtSignature": "cHJv"},
					{"functionCall": {"id": "a", "name": "look", "args": {"at": "<b>", "n": [12345678901234567890]}}},
					{"functionCall": {"id": "b_1", "name": "look", "args": {}}}]},
				{"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "look", "response": {"result": "seen"}}},
					{"functionResponse": {"id": "b_1", "name": "look", "response": {"result": "dark"}}}]},
				{"role": "user", "parts": [{"text": "the image that belongs to the result of the tool \"look\":"}, {"inlineData": {"mimeType": "image/png", "data": "Y2F0"}}]},
				{"role": "user", "parts": [{"text": "So?"}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, nil)
			e := c.endpoint
			e.BaseURL, e.Trusted = s.URL+"/v1", true
			if e.Provider == model.Google {
				e.BaseURL = s.URL
			}
			dialect := map[string]model.Dialect{"messages": model.Messages, "responses": model.Responses, "gemini": model.Gemini}[name]
			if dialect == "" {
				dialect = model.Chat
			}
			owner := string(e.Provider)
			if e.Name != "" {
				owner = e.Name
			}
			r := model.Request{System: "Be <brief>.", MaxTokens: 9000, Effort: entry.EffortLow,
				Tools: []model.Tool{{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object","properties":{"at":{"$ref":"#/$defs/place"},
					"n":{"type":"array","items":{"type":"integer"}}},"required":["at"],"$defs":{"place":{"type":"string","description":"where"}}}`)}},
				Messages: []entry.PiMessage{
					entry.PiUser{Content: []entry.PiBlock{entry.PiText("Well?"), image}},
					entry.PiAssistant{API: string(dialect), Provider: owner, Model: c.model, StopReason: entry.PiToolUse, Content: []entry.PiBlock{
						{Type: entry.PiThinkingBlock, Thinking: "Hm.", ThinkingSignature: c.proof}, entry.PiText("I look."),
						call("a", `{"at":"<b>","n":[12345678901234567890]}`), call("b 1|fc", `"no object"`)}},
					entry.PiToolResult{ToolCallID: "a", ToolName: "look", Content: []entry.PiBlock{entry.PiText("seen"), image}},
					entry.PiToolResult{ToolCallID: "b 1|fc", ToolName: "look", IsError: true, Content: []entry.PiBlock{entry.PiText("dark")}},
					entry.PiUser{Content: []entry.PiBlock{entry.PiText("So?")}},
				}}
			if _, err := quick().Stream(within(t), e, c.model, r, nil); err != nil {
				t.Fatal(err)
			}
			body := string(s.Requests()[0].Body)
			if got, want := tidy(t, body), tidy(t, c.want); got != want {
				t.Errorf("it is sent\n%s\nwant\n%s", got, want)
			}
			if !strings.Contains(body, "Be <brief>.") {
				t.Error("letters are escaped, which costs tokens at no provider, and reads badly in a dump")
			}
		})
	}
}

// tidy returns JSON with its keys in order and its numbers as they are written.
func tidy(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestAnswersOnTheWire: what each dialect can say besides what the scripted server says.
func TestAnswersOnTheWire(t *testing.T) {
	t.Parallel()
	messages := func(events ...string) string {
		return strings.Join(append([]string{`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":5,"cache_creation_input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1}}}`}, events...), "\n")
	}
	const text = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
		{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}
		{"type":"content_block_stop","index":0}`
	ends := func(reason string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":7}}
			{"type":"message_stop"}`
	}
	chat := func(delta, finish string) string {
		return `{"id":"c","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
	}
	gemini := func(parts, finish string) string {
		return `{"responseId":"g","candidates":[{"content":{"role":"model","parts":[` + parts + `]},"finishReason":"` + finish + `"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":7}}`
	}
	for _, c := range []struct {
		name    string
		dialect model.Dialect
		events  string // one a line
		stop    entry.PiStop
		kind    model.Kind // of the error
		content string     // the blocks: kind:text, and the proof of thinking in brackets
	}{
		{"a tool that the provider runs is left out", model.Messages, messages(`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}
			{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}
			{"type":"content_block_stop","index":0}
			{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"u"}]}}
			{"type":"content_block_stop","index":1}`, strings.ReplaceAll(text, `"index":0`, `"index":2`), ends("end_turn")), entry.PiStopped, "", "text:Hi"},
		{"a pause is an end", model.Messages, messages(text, ends("pause_turn")), entry.PiStopped, "", "text:Hi"},
		{"the window is full", model.Messages, messages(text, ends("model_context_window_exceeded")), entry.PiLength, "", "text:Hi"},
		{"a filter ends it", model.Messages, messages(text, ends("refusal")), entry.PiError, model.Refusal, "text:Hi"},
		{"a reason that nobody knows", model.Messages, messages(text, ends("tired")), entry.PiStopped, "", "text:Hi"},
		{"it is cut before its last event", model.Messages, messages(text, strings.SplitN(ends("end_turn"), "\n", 2)[0]), entry.PiError, model.Cut, "text:Hi"},
		{"its last event comes without a reason", model.Messages, messages(text, `{"type":"message_stop"}`), entry.PiError, model.Cut, "text:Hi"},
		{"arguments that come at once", model.Messages, messages(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"look","input":{"at":"x"}}}
			{"type":"content_block_stop","index":0}`, ends("tool_use")), entry.PiToolUse, "", `call:look{"at":"x"}`},
		{"a signature in two pieces", model.Messages, messages(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
			{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
			{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"ab"}}
			{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"cd"}}
			{"type":"content_block_stop","index":0}
			{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"ZW5j"}}
			{"type":"content_block_stop","index":1}`, ends("end_turn")), entry.PiStopped, "", "thinking:Hm[abcd] redacted:[ZW5j]"},
		{"an error without words", model.Messages, messages(text, `{"type":"error"}`), entry.PiError, model.Unreadable, "text:Hi"},

		{"calls whose end nobody announced", model.Chat, chat(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}`, "null"), entry.PiToolUse, "", "call:look{}"},
		{"calls that were cut", model.Chat, chat(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{\"at\":"}}]}`, "null"), entry.PiError, model.Cut, ""},
		{"calls in any order, one empty", model.Chat, chat(`{"tool_calls":[{"index":2,"function":{}},{"index":1,"id":"b","function":{"name":"list"}},{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}`, `"stop"`), entry.PiToolUse, "", "call:list{} call:look{}"},
		{"a call of no function", model.Chat, chat(`{"tool_calls":[{"index":0,"id":"a","type":"custom","function":{"name":"look"}}]}`, "null"), entry.PiError, model.Unreadable, ""},
		{"both names of thinking, and a text beside it", model.Chat, chat(`{"reasoning_content":"a"}`, "null") + "\n" + chat(`{"reasoning":"b","content":"Hi"}`, "null") + "\n" + chat(`{"reasoning_content":null,"content":"!"}`, `"stop"`), entry.PiStopped, "", "thinking:ab text:Hi!"},
		{"OpenRouter's thinking", model.Chat, chat(`{"reasoning":null,"reasoning_details":[{"type":"reasoning.summary","summary":"a"},{"type":"reasoning.text","text":"b","signature":"s"}]}`, "null") + "\n" + chat(`{"content":"Hi"}`, `"stop"`), entry.PiStopped, "", "thinking:ab text:Hi"},
		{"a filter", model.Chat, chat(`{"content":"Hi"}`, `"content_filter"`), entry.PiError, model.Refusal, "text:Hi"},
		{"no resources", model.Chat, chat(`{"content":"Hi"}`, `"insufficient_system_resource"`), entry.PiError, model.Unknown, "text:Hi"},
		{"an error that is a text", model.Chat, chat(`{"content":"Hi"}`, "null") + "\n" + `{"error":"the model is overloaded"}`, entry.PiError, model.Overload, "text:Hi"},
		{"content of another type", model.Chat, chat(`{"content":[{"type":"text"}]}`, "null") + "\n" + chat(`{"content":"Hi"}`, `"stop"`), entry.PiStopped, "", "text:Hi"},

		{"a failure without words", model.Responses, `{"type":"response.failed","response":{"id":"r","error":null}}`, entry.PiError, model.Unreadable, ""},
		{"a filter of responses", model.Responses, `{"type":"response.output_text.delta","output_index":0,"delta":"Hi"}` + "\n" + `{"type":"response.incomplete","response":{"id":"r","incomplete_details":{"reason":"content_filter"}}}`, entry.PiError, model.Refusal, "text:Hi"},
		{"two parts of a summary", model.Responses, `{"type":"response.output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning"}}
			{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}
			{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"a"}
			{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}
			{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"b"}
			{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning"}}
			{"type":"response.output_item.added","output_index":1,"item":{"type":"web_search_call","id":"ws"}}
			{"type":"response.output_item.done","output_index":1,"item":{"type":"web_search_call","id":"ws"}}
			{"type":"response.output_text.delta","output_index":2,"delta":"Hi"}
			{"type":"response.completed","response":{"id":"r"}}`, entry.PiStopped, "", "thinking:a\nb text:Hi"},
		{"what comes behind the end is not waited for", model.Responses, `{"type":"response.output_text.delta","output_index":0,"delta":"Hi"}
			{"type":"response.completed","response":{"id":"r"}}
			{"type":"response.output_text.delta","output_index":0,"delta":"!"}`, entry.PiStopped, "", "text:Hi"},

		{"a question that is blocked", model.Gemini, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":5}}`, entry.PiError, model.Refusal, ""},
		{"a filter of Google's", model.Gemini, gemini(`{"text":"Hi"}`, "PROHIBITED_CONTENT"), entry.PiError, model.Refusal, "text:Hi"},
		{"a call that Google's model wrote badly", model.Gemini, gemini("", "MALFORMED_FUNCTION_CALL"), entry.PiError, model.Unknown, ""},
		{"it is cut", model.Gemini, strings.Replace(gemini(`{"text":"Hi"}`, ""), `"finishReason":"",`, "", 1), entry.PiError, model.Cut, "text:Hi"},
		{"calls without ids, and proofs of what follows", model.Gemini, gemini(`{"text":"Hm","thought":true},{"text":"Hi","thoughtSignature":"AA=="}`, "") + "\n" + gemini(`{"functionCall":{"name":"look","args":{"at":"x"}},"thoughtSignature":"AQ=="},{"functionCall":{"name":"list"}}`, "STOP"),
			entry.PiToolUse, "", `thinking:Hm[AA==] text:Hi thinking:[AQ==] call:look{"at":"x"} call:list{}`},
		{"an invalid proof", model.Gemini, gemini(`{"text":"Hi","thoughtSignature":"?"}`, "STOP"), entry.PiError, model.Unreadable, ""},
	} {
		t.Run(string(c.dialect)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			var body strings.Builder
			for line := range strings.Lines(c.events) {
				body.WriteString("data: " + strings.TrimSpace(line) + "\n\n")
			}
			a, err := quick().Over(script{body: []byte(body.String())}).Stream(within(t), endpoint(c.dialect), "any", ask("?"), nil)
			var failed *model.Error
			if errors.As(err, &failed); c.kind == "" && err != nil || c.kind != "" && (failed == nil || failed.Kind != c.kind) || a.Message.StopReason != c.stop {
				t.Errorf("it ends with %q and %v", a.Message.StopReason, err)
			}
			var blocks []string
			for _, b := range a.Message.Content {
				kind := map[string]string{entry.PiTextBlock: "text:", entry.PiThinkingBlock: "thinking:", entry.PiCallBlock: "call:"}[b.Type]
				if b.Redacted {
					kind = "redacted:"
				}
				block := kind + b.Text + b.Thinking + b.Name + string(b.Arguments)
				if b.ThinkingSignature != "" {
					block += "[" + b.ThinkingSignature + "]"
				}
				blocks = append(blocks, block)
				if b.Type == entry.PiCallBlock && b.ID == "" {
					t.Errorf("the call of %s has no id", b.Name)
				}
			}
			if got := strings.Join(blocks, " "); got != c.content {
				t.Errorf("it answers %q, want %q", got, c.content)
			}
			if c.dialect == model.Messages && c.kind == "" && a.Usage != (model.Usage{Input: 5, Output: 7, CacheRead: 2, CacheWrite: 3}) {
				t.Errorf("it used %+v", a.Usage)
			}
		})
	}
}

// The id of a model is a part of the address at Google. It does not lead to another one.
func TestAModelsIDStaysWhereModelsAre(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	_, err := quick().Stream(within(t), at(s, model.Gemini), "tunedModels/../../v1/secret", ask("?"), nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Kind != model.UnknownModel || fault.CodeOf(err) != fault.Precondition || len(s.Requests()) > 0 {
		t.Errorf("it is asked: %v", err)
	}
}

// Gemma has no system prompt; it reads it before what is said first.
func TestGemmasSystemPrompt(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	if _, err := quick().Stream(within(t), at(s, model.Gemini), "gemma-3-27b-it", ask("Well?"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := sent(t, s, 0), `[{"role":"user","parts":[{"text":"Be brief.\n\n"},{"text":"Well?"}]}]`; got["contents"] != want || got["systemInstruction"] != "" {
		t.Errorf("it is sent %s and %s", got["contents"], got["systemInstruction"])
	}
}
