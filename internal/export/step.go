package export

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxLine is roughly the length of a line about a step, in characters.
const maxLine = 100

// Steps describes the progress that an entry reports of a bot's turn, one line per step: tool calls, their results, and
// waits. It returns no lines for other entries.
func Steps(e *arbev1.Entry) []string {
	payload, _ := Decode(e)
	switch p := payload.(type) {
	case entry.PiAssistant:
		var lines []string
		for _, c := range p.Calls() {
			lines = append(append(lines, "→ "+Call(c)), wholeLine(c.WholeBytes, c.ArtifactID)...)
		}
		return lines
	case entry.PiToolResult:
		if p.Details == nil {
			return []string{resultLine(p)}
		}
		return append([]string{resultLine(p)}, wholeLine(p.Details.WholeBytes, p.Details.ArtifactID)...)
	case entry.PiCompaction:
		return []string{"summarized the older part of the thread"}
	case entry.PermissionAsked:
		return Asked(p, "the bot")
	}
	// Other code shows how work begins and ends.
	if part, ok := DoesTo(e, entry.TurnWork); ok && (part.Stage == entry.Updates || part.Stage == entry.Notes) {
		return []string{payload.Plain()}
	}
	return nil
}

// resultLine returns a tool's result in one line.
func resultLine(p entry.PiToolResult) string {
	took := (time.Duration(p.DurationMS) * time.Millisecond).Round(100 * time.Millisecond)
	if p.IsError {
		return fmt.Sprintf("  ✗ %s: %s (%s)", p.ToolName, Clip(failedText(p)), took)
	}
	if d := p.Details; d != nil && d.Path != "" {
		return fmt.Sprintf("  ✓ %s %s +%d −%d (%s)", p.ToolName, Clip(d.Path), d.Added, d.Removed, took)
	}
	return fmt.Sprintf("  ✓ %s (%s)", p.ToolName, took)
}

// wholeLine says how to get the full text if the log has only part of it. size is 0 if the log has all of it.
func wholeLine(size int64, artifact string) []string {
	if size == 0 || artifact == "" {
		return nil
	}
	return []string{fmt.Sprintf("    all of it (%s): arbe artifact get %s", entry.FileSize(size), Clip(artifact))}
}

// failedText returns the part of a failed call's result that explains the failure. For a command, that is the last line and
// the exit code.
func failedText(p entry.PiToolResult) string {
	lines := strings.Split(strings.TrimSpace(p.Text()), "\n")
	if p.ToolName == entry.RunCommandTool && strings.HasPrefix(lines[len(lines)-1], "[") {
		lines = lines[max(len(lines)-2, 0):]
	}
	return strings.Join(lines, " ")
}

// Call describes a tool call in one line: the command if it runs one, the path if it is about a file.
func Call(c entry.PiBlock) string {
	var command struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	if c.Name == entry.RunCommandTool && json.Unmarshal(c.Arguments, &command) == nil && command.Command != "" {
		return "$ " + Clip(command.Command)
	}
	switch c.Name {
	case entry.ReadFileTool, entry.WriteFileTool, entry.EditFileTool:
		if json.Unmarshal(c.Arguments, &command) == nil && command.Path != "" {
			return c.Name + " " + Clip(command.Path)
		}
	}
	if arguments := string(c.Arguments); arguments != "{}" {
		return c.Name + " " + Clip(arguments)
	}
	return c.Name
}

// Clip returns the beginning of a text, on one line.
func Clip(text string) string {
	text = entry.PrintableLine(strings.Join(strings.Fields(text), " "))
	if runes := []rune(text); len(runes) > maxLine {
		return string(runes[:maxLine]) + "…"
	}
	return text
}

// shownArguments limits how much of a call's arguments is printed while following a thread.
const shownArguments = 4 << 10

// Arguments returns the arguments of a call as lines. Each line of a text is indented, so that it cannot pass for another
// argument. A limit in bytes leaves out further lines, and the last line then says how many bytes they have.
func Arguments(text json.RawMessage, limit int) (lines []string) {
	used := 0
	for _, p := range entry.Arguments(text) {
		for i, line := range strings.Split(p.Value, "\n") {
			if i == 0 && p.Name != "" {
				line = p.Name + ": " + line
			} else {
				line = "    " + line
			}
			lines = append(lines, "  "+line)
		}
	}
	if limit == 0 {
		return lines
	}
	for i, line := range lines {
		if used += len(line); used > limit {
			left := 0
			for _, line := range lines[i:] {
				left += len(line)
			}
			return append(lines[:i:i], fmt.Sprintf("  … %d more bytes in %d lines, not shown here", left, len(lines)-i))
		}
	}
	return lines
}

// Asked returns a request for approval, with the commands that answer it.
func Asked(p entry.PermissionAsked, bot string) []string {
	if p.Question {
		lines := append([]string{bot + " has a question:"}, Arguments(p.Arguments, shownArguments)...)
		return append(lines, fmt.Sprintf("answer until %s with: arbe approve %s YOUR ANSWER", p.Expires().UTC().Format(time.RFC3339), p.ApprovalID))
	}
	lines := append([]string{bot + " asks whether it may call " + p.Tool + ":"}, Arguments(p.Arguments, shownArguments)...)
	return append(lines, fmt.Sprintf("answer until %s with: arbe approve %s, or: arbe deny %s (arbe approval show %s shows it whole)",
		p.Expires().UTC().Format(time.RFC3339), p.ApprovalID, p.ApprovalID, p.ApprovalID))
}
