package claude

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"path"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Rebuild writes a transcript under a new name, because Claude Code would continue an existing one.
func (Harness) Rebuild(job harness.Job, messages []entry.PiMessage) ([]harness.File, string, error) {
	session := newID()
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	var parent any
	var n uint64
	for _, m := range merged(messages) {
		n++
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(session), n))
		id := uuid(sum[:16])
		err := to.Encode(object{"parentUuid": parent, "type": m["role"], "message": m, "uuid": id, "sessionId": session, "cwd": job.Dir, "version": Version,
			"isSidechain": false, "timestamp": time.UnixMilli(int64(n)).UTC().Format("2006-01-02T15:04:05.000Z")})
		if err != nil {
			return nil, "", err
		}
		parent = id
	}
	folder := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, job.Dir)
	return []harness.File{{Path: path.Join("claude/projects", folder, session+".jsonl"), Content: out.Bytes()}}, session, nil
}

// merged returns the messages as the dialect has them: results belong to a user, and all results of an answer are in one
// message.
func merged(messages []entry.PiMessage) (out []object) {
	add := func(role string, content []object) {
		if len(content) == 0 {
			return
		}
		if n := len(out); n > 0 && out[n-1]["role"] == role && role == "user" {
			out[n-1]["content"] = append(out[n-1]["content"].([]object), content...)
			return
		}
		out = append(out, object{"role": role, "content": content})
	}
	for _, m := range messages {
		switch p := m.(type) {
		case entry.PiUser:
			add("user", []object{{"type": "text", "text": p.Text()}})
		case entry.PiAssistant:
			add("assistant", answerContent(p))
		case entry.PiToolResult:
			add("user", []object{{"type": "tool_result", "tool_use_id": harness.CallID(p.ToolCallID), "content": p.Text(), "is_error": p.IsError}})
		}
	}
	return out
}

// answerContent returns the text and the calls of an answer.
func answerContent(p entry.PiAssistant) (content []object) {
	if text := p.Text(); text != "" {
		content = append(content, object{"type": "text", "text": text})
	}
	for _, c := range p.Calls() {
		arguments := c.Arguments
		if !json.Valid(arguments) || !bytes.HasPrefix(bytes.TrimSpace(arguments), []byte("{")) {
			arguments = json.RawMessage("{}")
		}
		content = append(content, object{"type": "tool_use", "id": harness.CallID(c.ID), "name": harness.ToolName(c.Name), "input": arguments})
	}
	return content
}
