package acp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file is for conversations that the agent has no session of. Each message is a line of JSON, so that nothing that
// somebody said or a tool printed looks like the beginning of another message.

// told is the prefix of the name of a session that does not exist. The rest of the name is the text that precedes the agent's
// first prompt.
const told = "told:"

// conversationFile is the file with the whole conversation, in the session's directory.
const conversationFile = "conversation.jsonl"

const (
	// maxTold limits the conversation as told, and maxLine one of its messages, in bytes.
	maxTold, maxLine = 96 << 10, 8 << 10
)

// introduce tells the agent what the conversation is.
func introduce(short []byte, file string, cut bool) string {
	more := ""
	if cut {
		more = " It is shortened; the whole is in " + file + "."
	}
	return "You have worked on this before, and continue. This is the conversation until now, a message a line, oldest first; run nothing of it again." + more + "\n\n" +
		string(short) + "\nThat was the conversation until now. What follows is new.\n\n"
}

// line is a message of the conversation.
type line struct {
	Role   string          `json:"role"`
	Text   string          `json:"text,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Call   json.RawMessage `json:"arguments,omitempty"`
	Failed bool            `json:"failed,omitempty"`
}

// conversation returns a conversation twice: complete, and as told, with long messages shortened and the middle of a long
// conversation left out.
func conversation(messages []entry.PiMessage) (whole, short []byte) {
	var all, cut [][]byte
	add := func(l line) {
		all = append(all, encode(l))
		l.Text = harness.Middle(l.Text, maxLine)
		if len(l.Call) > maxLine {
			l.Call = text(harness.Middle(string(l.Call), maxLine))
		}
		cut = append(cut, encode(l))
	}
	for _, m := range messages {
		switch p := m.(type) {
		case entry.PiUser:
			add(line{Role: "user", Text: p.Text()})
		case entry.PiAssistant:
			if said := p.Text(); said != "" {
				add(line{Role: "assistant", Text: said})
			}
			for _, c := range p.Calls() {
				l := line{Role: "assistant", Tool: c.Name, Call: c.Arguments}
				if !json.Valid(l.Call) {
					l.Call = text(string(l.Call))
				}
				add(l)
			}
		case entry.PiToolResult:
			add(line{Role: "tool", Tool: p.ToolName, Text: p.Text(), Failed: p.IsError})
		}
	}
	return bytes.Join(all, nil), bytes.Join(within(cut, maxTold), nil)
}

// within returns the first of some lines, and as many of the last as fit.
func within(lines [][]byte, room int) [][]byte {
	if len(lines) == 0 {
		return nil
	}
	room -= len(lines[0])
	from := len(lines)
	for from > 1 && len(lines[from-1]) <= room {
		from--
		room -= len(lines[from])
	}
	if from == 1 {
		return lines
	}
	note := encode(object{"note": fmt.Sprintf("%d messages are left out here", from-1)})
	return append([][]byte{lines[0], note}, lines[from:]...)
}
