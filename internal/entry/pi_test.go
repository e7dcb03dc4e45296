package entry_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

// These are messages that pi itself wrote into its session files.
const (
	piUser      = `{"role":"user","content":[{"type":"text","text":"write hi to out.txt"}],"timestamp":1795192112074}`
	piAssistant = `{"role":"assistant","content":[{"type":"text","text":"I will run a command."},{"type":"toolCall","id":"call_000012","name":"bash","arguments":{"command":"echo hi > out.txt"}}],"api":"openai-completions","provider":"fake","model":"fake-ok","responseId":"chatcmpl-12","usage":{"input":112,"output":20,"cacheRead":0,"cacheWrite":0,"totalTokens":132,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"toolUse","timestamp":1795192112091,"durationMs":44}`
	piResult    = `{"role":"toolResult","toolCallId":"call_000012","toolName":"bash","content":[{"type":"text","text":"(no output)"}],"isError":false,"timestamp":1795192112160,"durationMs":16}`
)

func TestPiMessages(t *testing.T) {
	t.Parallel()

	t.Run("pi's own messages are read and written unchanged", func(t *testing.T) {
		user, assistant, result := entry.PiUser{}, entry.PiAssistant{}, entry.PiToolResult{}
		for text, message := range map[string]any{piUser: &user, piAssistant: &assistant, piResult: &result} {
			if err := json.Unmarshal([]byte(text), message); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(message)
			var is, want any
			if err := errors.Join(err, json.Unmarshal(again, &is), json.Unmarshal([]byte(text), &want)); err != nil || !reflect.DeepEqual(is, want) {
				t.Errorf("%v, written again as\n%s\nwant\n%s", err, again, text)
			}
		}
		if assistant.Text() != "I will run a command." || assistant.StopReason != entry.PiToolUse || assistant.Usage.TotalTokens != 132 {
			t.Errorf("the answer is %+v", assistant)
		}
		calls := assistant.Calls()
		if len(calls) != 1 || calls[0].ID != result.ToolCallID || string(calls[0].Arguments) != `{"command":"echo hi > out.txt"}` {
			t.Errorf("the calls are %+v", calls)
		}
		if user.Text() != "write hi to out.txt" || result.Text() != "(no output)" {
			t.Errorf("the texts are %q and %q", user.Text(), result.Text())
		}
	})

	t.Run("a message of another role is refused", func(t *testing.T) {
		if err := json.Unmarshal([]byte(piUser), &entry.PiAssistant{}); err == nil || !strings.Contains(err.Error(), `"user"`) {
			t.Errorf("the error is %v", err)
		}
	})

	t.Run("a content may be a string", func(t *testing.T) {
		var user entry.PiUser
		if err := json.Unmarshal([]byte(`{"role":"user","content":"Q"}`), &user); err != nil || user.Text() != "Q" {
			t.Errorf("it is %+v (%v)", user, err)
		}
	})

	t.Run("every field that pi reads is there, even if it is empty", func(t *testing.T) {
		text, err := json.Marshal(entry.PiAssistant{})
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"} {
			if fields[name] == nil {
				t.Errorf("there is no %s: %s", name, text)
			}
		}
		if strings.Contains(string(text), "cost") {
			t.Errorf("an unknown cost is written as if it were known: %s", text)
		}
	})
}

func TestPiBlock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		block entry.PiBlock
		text  string
	}{
		{entry.PiText(""), `{"type":"text","text":""}`},
		{entry.PiBlock{Type: entry.PiThinkingBlock, Thinking: "hm", ThinkingSignature: "s"}, `{"type":"thinking","thinking":"hm","thinkingSignature":"s"}`},
		{entry.PiBlock{Type: entry.PiThinkingBlock, ThinkingSignature: "s", Redacted: true}, `{"type":"thinking","thinking":"","thinkingSignature":"s","redacted":true}`},
		{entry.PiBlock{Type: entry.PiCallBlock, ID: "c", Name: "bash", Arguments: json.RawMessage(`{"a":1}`)}, `{"type":"toolCall","id":"c","name":"bash","arguments":{"a":1}}`},
		{entry.PiBlock{Type: entry.PiImageBlock, Data: "QQ==", MIMEType: "image/png"}, `{"type":"image","data":"QQ==","mimeType":"image/png"}`},
	} {
		text, err := json.Marshal(c.block)
		if err != nil || string(text) != c.text {
			t.Errorf("it is written %s (%v), want %s", text, err, c.text)
		}
		var again entry.PiBlock
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, c.block) {
			t.Errorf("%s is read as %+v (%v)", text, again, err)
		}
	}
	if text, err := json.Marshal(entry.PiBlock{Type: entry.PiCallBlock, ID: "c", Name: "now"}); err != nil || !strings.Contains(string(text), `"arguments":{}`) {
		t.Errorf("a call without arguments is %s (%v)", text, err)
	}
	if _, err := json.Marshal(entry.PiBlock{Type: "video"}); err == nil {
		t.Error("a block of an unknown type is written")
	}
}
