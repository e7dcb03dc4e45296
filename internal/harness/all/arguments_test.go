package all_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
)

// Arguments of a megabyte reach the runner whole, which keeps them before the log gets a part of them.
func TestLongArgumentsAreReadWhole(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a line of a file, ", 60_000)
	for name, lines := range map[string][]string{
		"pi": {`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"call1","name":"write","arguments":{"content":"TEXT"}}],"usage":{},"stopReason":"toolUse"}}`},
		"codex": {`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`, `{"id":3,"result":{"turn":{"id":"u"}}}`,
			item("started", `{"type":"commandExecution","id":"call1","command":"TEXT","status":"inProgress"}`)},
		"claude-code": {`{"type":"system","subtype":"init","session_id":"s"}`,
			`{"type":"assistant","message":{"id":"m","model":"plain","role":"assistant","content":[{"type":"tool_use","id":"call1","name":"Write","input":{"content":"TEXT"}}]}}`,
			`{"type":"user","message":{"role":"user","content":[{"tool_use_id":"call1","type":"tool_result","content":"written"}]}}`},
		"acp-opencode": {`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`, `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`,
			update(`{"sessionUpdate":"tool_call","toolCallId":"call1","title":"write","kind":"edit","status":"in_progress","rawInput":{"content":"TEXT"}}`)},
	} {
		h, ok := all.Named(name)
		if !ok {
			t.Fatalf("there is no harness %s", name)
		}
		r := h.Read(harness.Job{Model: harness.Model{Provider: "test", ID: "m", Dialect: h.Info().Dialects[0]}}, "", "go on")
		var calls []entry.PiBlock
		for _, line := range lines {
			for _, e := range r.Line([]byte(strings.Replace(line, "TEXT", text, 1)), 0) {
				if a, ok := e.Message.(entry.PiAssistant); ok {
					calls = append(calls, a.Calls()...)
				}
			}
		}
		var got struct{ Content, Cmd string }
		if len(calls) != 1 || json.Unmarshal(calls[0].Arguments, &got) != nil || got.Content+got.Cmd != text || !harness.IsLong(calls[0].Arguments) {
			t.Errorf("%s: it reads %d calls, and %d of %d bytes", name, len(calls), len(got.Content), len(text))
		}
	}
}
