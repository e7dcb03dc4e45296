package all_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/acp"
	"github.com/arbe-dev/arbe/internal/harness/claude"
	"github.com/arbe-dev/arbe/internal/harness/codex"
	"github.com/arbe-dev/arbe/internal/harness/pi"
)

func FuzzPi(f *testing.F) {
	f.Add([]byte(`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"bash","arguments":{"a":"\u0000"}}],"usage":{},"stopReason":"toolUse"}}
{"type":"message_update","assistantMessageEvent":{"type":"toolcall_delta","contentIndex":1,"delta":"x"}}
{"type":"compaction_end","result":{"summary":"s","tokensBefore":3}}
{"type":"auto_retry_start","delayMs":2000,"errorMessage":"busy"}
{"type":"extension_ui_request","id":"1","method":"confirm"}
{"type":"response","command":"prompt","success":false,"error":"no"}
{"type":"agent_settled"}`), int64(0))
	fuzz(f, pi.Harness{})
}

func FuzzCodex(f *testing.F) {
	text := []byte(`{"id":1,"result":{}}
{"id":2,"result":{"thread":{"id":"t"}}}
{"id":3,"result":{"turn":{"id":"u"}}}
{"method":"item/started","params":{"threadId":"t","item":{"id":"i","type":"commandExecution","command":"ls"}}}
{"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"t","turnId":"u","itemId":"i","command":"ls"}}
{"method":"item/tool/requestUserInput","id":1,"params":{"threadId":"t","turnId":"u","itemId":"q","questions":[{"id":"a"}]}}
{"method":"item/completed","params":{"threadId":"t","item":{"id":"i","type":"commandExecution","command":"ls","aggregatedOutput":"x","exitCode":3,"status":"failed"}}}
{"method":"item/completed","params":{"threadId":"t","item":{"id":"m","type":"mcpToolCall","server":"s","tool":"t","arguments":{"a":1},"result":[1]}}}
{"method":"item/reasoning/summaryTextDelta","params":{"threadId":"t","itemId":"r","delta":"hm"}}
{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":"a","delta":"do"}}
{"method":"item/completed","params":{"threadId":"t","item":{"id":"a","type":"agentMessage","text":"done"}}}
{"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"total":{"inputTokens":3,"cachedInputTokens":9},"last":{}}}}
{"method":"error","params":{"threadId":"t","error":{"message":"again"},"willRetry":true}}
{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed","error":{"message":"max_output_tokens"}}}}`)
	f.Add(text, int64(0))
	f.Add(text, int64(5))
	fuzz(f, codex.Harness{})
}

func FuzzClaude(f *testing.F) {
	f.Add([]byte(`{"type":"system","subtype":"init","session_id":"s"}
{"type":"stream_event","event":{"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}}
{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"Bash"}}}
{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}}
{"type":"assistant","message":{"model":"<synthetic>","content":"API Error"}}
{"type":"result","is_error":true,"result":"bad"}`), int64(0))
	fuzz(f, claude.Harness{})
}

func FuzzACP(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"protocolVersion":1}}
{"id":2,"result":{"sessionId":"s"}}
{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"x"}}}}
{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"bash","status":"in_progress","rawInput":{"a":"\u0000"}}}}
{"id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"o","kind":"allow_once"}]}}
{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"diff","path":"p"}],"rawOutput":{"metadata":{"exit":3}}}}}
{"id":3,"result":{"stopReason":"end_turn"}}`), int64(0))
	fuzz(f, acp.OpenCode(), acp.Gemini())
}

// fuzz gives a reader arbitrary lines. Its messages must be valid entries that can be read back, and it must decide.
func fuzz(f *testing.F, harnesses ...harness.Harness) {
	f.Fuzz(func(t *testing.T, text []byte, cut int64) {
		for _, h := range harnesses {
			feed(t, h, text, cut)
		}
	})
}

func feed(t *testing.T, h harness.Harness, text []byte, cut int64) {
	r := h.Read(harness.Job{Model: harness.Model{Provider: "p", ID: "m"}}, "", "go on")
	var log []entry.Entry
	err := harness.ReadLines(bytes.NewReader(text), func(line []byte, more int64) {
		for _, e := range r.Line(line, max(more, cut)) {
			if e.Message == nil {
				continue
			}
			if c, ok := e.Message.(entry.PiCompaction); ok {
				c.FirstKeptSeq = 1
				e.Message = c
			}
			short := harness.Shorten(e.Message)
			payload, err := json.Marshal(short)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			entryOf := entry.Entry{Seq: int64(len(log) + 1), Type: short.Type(), Payload: payload}
			if _, ok := entry.Decode(entryOf); !ok {
				t.Fatalf("%s is not an entry: %s", payload, line)
			}
			log = append(log, entryOf)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Decide(harness.Exit{})
	if _, _, err := h.Rebuild(harness.Job{Dir: "/w", Session: "/s"}, harness.Transcript(log, "", 0)); err != nil {
		t.Fatal(err)
	}
}
