package all_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
)

// acpFlood is in the format of the Agent Client Protocol.
var acpFlood = harnesstest.Flood{
	Begin: []string{`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`, `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`,
		update(`{"sessionUpdate":"tool_call","toolCallId":"call1","title":"bash","kind":"execute","status":"in_progress","rawInput":{"command":"ls"}}`)},
	Call:   update(`{"sessionUpdate":"tool_call","toolCallId":"ID","title":"bash","kind":"execute","status":"in_progress","rawInput":{"command":"ls"},"rawOutput":{"output":"TEXT"}}`),
	Result: `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"call1","status":"completed","rawOutput":{"output":"`,
	Piece:  update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"TEXT"}}`),
}

func update(text string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + text + `}}`
}

// item is in the format of Codex.
func item(what, text string) string {
	return `{"method":"item/` + what + `","params":{"item":` + text + `,"threadId":"t","turnId":"u"}}`
}

var floods = map[string]harnesstest.Flood{
	"pi": {
		Begin:  []string{`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"call1","name":"bash","arguments":{"command":"ls"}}],"usage":{},"stopReason":"toolUse"}}`},
		Call:   `{"type":"message_update","assistantMessageEvent":{"type":"toolcall_start","contentIndex":1,"id":"ID","toolName":"bash","delta":"TEXT"}}`,
		Result: `{"type":"message_end","message":{"role":"toolResult","toolCallId":"call1","toolName":"bash","content":[{"type":"text","text":"`,
		Piece:  `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"TEXT"}}`,
	},
	"codex": {
		Begin: []string{`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`, `{"id":3,"result":{"turn":{"id":"u"}}}`,
			item("started", `{"type":"commandExecution","id":"call1","command":"ls","status":"inProgress"}`)},
		Call:   item("started", `{"type":"commandExecution","id":"ID","command":"TEXT","status":"inProgress"}`),
		Result: `{"method":"item/completed","params":{"item":{"type":"commandExecution","id":"call1","command":"ls","aggregatedOutput":"`,
		Piece:  `{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"m","delta":"TEXT"}}`,
	},
	"claude-code": {
		Begin: []string{`{"type":"system","subtype":"init","session_id":"s"}`,
			`{"type":"assistant","message":{"id":"m","model":"plain","role":"assistant","content":[{"type":"tool_use","id":"call1","name":"Bash","input":{"command":"ls"}}]}}`},
		Call:   `{"type":"assistant","message":{"id":"n","model":"plain","role":"assistant","content":[{"type":"tool_use","id":"ID","name":"Bash","input":{"command":"TEXT"}}]}}`,
		Result: `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"call1","type":"tool_result","content":"`,
		Piece:  `{"type":"assistant","message":{"id":"n","model":"plain","role":"assistant","content":[{"type":"text","text":"TEXT"}]}}`,
	},
	"acp-opencode": acpFlood, "acp-gemini": acpFlood,
}

// An agent that floods the runner fills neither its memory nor its time. This measures the process's memory, so it runs alone.
func TestFloods(t *testing.T) { //nolint:paralleltest // see above
	for _, h := range all.Harnesses {
		t.Run(h.Info().Name, func(t *testing.T) {
			f, ok := floods[h.Info().Name]
			if !ok {
				t.Fatal("floods has no output in its format")
			}
			harnesstest.Floods(t, h, f)
		})
	}
}
