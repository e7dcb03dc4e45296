package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Limits on how much of one message an entry holds. Agents read and print more than people read.
const (
	maxResult    = 64 << 10
	maxAnswer    = 1 << 20
	maxArguments = 256 << 10
)

// Shorten returns a message as the log keeps it: without the middle of long results, answers and arguments, and with a line
// of text in place of each image.
func Shorten(p entry.Payload) entry.Payload {
	switch m := p.(type) {
	case entry.PiAssistant:
		m.Content = shortBlocks(m.Content, maxAnswer)
		m.ErrorMessage = Middle(m.ErrorMessage, 4<<10)
		return m
	case entry.PiToolResult:
		m.Content = shortBlocks(m.Content, maxResult)
		return m
	case entry.PiCompaction:
		m.Summary = Middle(m.Summary, maxAnswer)
		return m
	}
	return p
}

// Whole returns the text of a tool's result of which [Shorten] leaves something out; empty for every other message.
func Whole(p entry.Payload) string {
	m, ok := p.(entry.PiToolResult)
	if !ok {
		return ""
	}
	if text := m.Text(); len(text) > maxResult {
		return text
	}
	return ""
}

// IsLong reports whether [Shorten] leaves out a part of a call's arguments.
func IsLong(arguments json.RawMessage) bool { return len(arguments) > maxArguments }

// shortBlocks shortens blocks that exceed room bytes together.
func shortBlocks(blocks []entry.PiBlock, room int) []entry.PiBlock {
	kept := make([]entry.PiBlock, 0, len(blocks))
	for _, b := range blocks {
		switch b.Type {
		case entry.PiTextBlock:
			b.Text = Middle(b.Text, max(room, 200))
			room -= len(b.Text)
		case entry.PiThinkingBlock:
			if len(b.Thinking)+len(b.ThinkingSignature) > max(room, 200) {
				b.Thinking, b.ThinkingSignature = Middle(b.Thinking, max(room, 200)), "" // the signature is only valid for the whole text
			}
			room -= len(b.Thinking) + len(b.ThinkingSignature)
		case entry.PiCallBlock:
			b.Arguments = shortArguments(b.Arguments)
			room -= len(b.Arguments)
		case entry.PiImageBlock:
			b = entry.PiText(fmt.Sprintf("[an image (%s, %s) is not kept]", b.MIMEType, entry.FileSize(int64(len(b.Data))*3/4)))
		default:
			b = entry.PiText("[content of the type " + entry.OneLine(b.Type, 60) + " is not kept]")
		}
		if kept = append(kept, b); len(kept) == maxBlocks && len(blocks) > maxBlocks {
			return append(kept, entry.PiText(fmt.Sprintf("[%d more blocks are not kept]", len(blocks)-maxBlocks)))
		}
	}
	return kept
}

// maxBlocks limits the blocks of a message that are kept.
const maxBlocks = 500

// shortArguments shortens long strings in arguments.
func shortArguments(arguments json.RawMessage) json.RawMessage {
	if !IsLong(arguments) {
		return arguments
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(arguments, &fields) != nil {
		text, _ := json.Marshal(Middle(string(arguments), maxResult)) // a string
		return text
	}
	for name, value := range fields {
		if len(value) <= maxResult {
			continue
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		fields[name], _ = json.Marshal(Middle(text, maxResult)) // a string
	}
	if text, err := json.Marshal(fields); err == nil && len(text) <= 2*maxArguments {
		return text
	}
	text, _ := json.Marshal(Middle(string(arguments), maxResult)) // a string
	return text
}

// Middle removes the middle of a text of more than n bytes and puts a line in its place.
func Middle(text string, n int) string {
	if len(text) <= n {
		return text
	}
	half := n / 2
	head, tail := strings.ToValidUTF8(text[:half], ""), strings.ToValidUTF8(text[len(text)-half:], "")
	return fmt.Sprintf("%s\n\n[%s left out]\n\n%s", head, entry.FileSize(int64(len(text)-len(head)-len(tail))), tail)
}

// callOfLine finds the id and name of a tool call at the beginning of a line that is too long to be decoded.
var callOfLine = lazyregexp.New(`"(?:toolCallId|tool_use_id)"\s*:\s*"([^"\\]{1,200})"(?:[^{]{0,40}?"toolName"\s*:\s*"([^"\\]{1,100})")?`)

// LongResult returns the result of a tool call whose line is too long to be decoded. ok is false if the beginning of the line
// names no call.
func LongResult(harness string, line []byte, cut int64) (r entry.PiToolResult, ok bool) {
	m := callOfLine.FindSubmatch(line[:min(len(line), 4<<10)])
	if m == nil {
		return r, false
	}
	text := fmt.Sprintf("[the result has more than %s and is not kept]", entry.FileSize(int64(len(line))+cut))
	return entry.PiToolResult{Harness: harness, ToolCallID: string(m[1]), ToolName: string(m[2]), Content: []entry.PiBlock{entry.PiText(text)}}, true
}
