package codex

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Rebuild writes a rollout: the items of the conversation, as Codex sends them to the model.
func (Harness) Rebuild(job harness.Job, messages []entry.PiMessage) ([]harness.File, string, error) {
	sum := sha256.New()
	var lines []object
	for _, m := range messages {
		text, err := json.Marshal(m)
		if err != nil {
			return nil, "", err
		}
		sum.Write(text)
		lines = append(lines, items(m)...)
	}
	// Each conversation gets a new id, so that no earlier file is continued.
	h := sum.Sum(nil)
	h[6], h[8] = h[6]&0x0f|0x70, h[8]&0x3f|0x80 // version and variant of a UUID
	id := fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
	now := time.Unix(0, 0).UTC().Format("2006-01-02T15:04:05.000Z")
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	err := to.Encode(object{"timestamp": now, "type": "session_meta", "payload": object{"id": id, "timestamp": now, "cwd": job.Dir,
		"originator": "arbe", "cli_version": Version}})
	for _, payload := range lines {
		if err == nil {
			err = to.Encode(object{"timestamp": now, "type": "response_item", "payload": payload})
		}
	}
	return []harness.File{{Path: "codex/sessions/rollout-1970-01-01T00-00-00-" + id + ".jsonl", Content: out.Bytes()}}, id, err
}

// items returns a message as Codex sends it to the model.
func items(m entry.PiMessage) (list []object) {
	switch p := m.(type) {
	case entry.PiUser:
		list = []object{{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": p.Text()}}}}
	case entry.PiAssistant:
		if text := p.Text(); text != "" {
			list = append(list, object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": text}}})
		}
		for _, c := range p.Calls() {
			list = append(list, object{"type": "function_call", "name": harness.ToolName(c.Name), "arguments": string(c.Arguments), "call_id": harness.CallID(c.ID)})
		}
	case entry.PiToolResult:
		list = []object{{"type": "function_call_output", "call_id": harness.CallID(p.ToolCallID), "output": p.Text()}}
	}
	return list
}
