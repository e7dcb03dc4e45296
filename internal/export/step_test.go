package export

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestTheStepsOfABotAsLines(t *testing.T) {
	t.Parallel()
	call := func(name, arguments string) entry.Payload {
		return entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{{Type: entry.PiCallBlock, ID: "c", Name: name, Arguments: json.RawMessage(arguments)}}}
	}
	result := func(failed bool, text string) entry.Payload {
		return entry.PiToolResult{ToolCallID: "c", ToolName: entry.RunCommandTool, IsError: failed, Content: []entry.PiBlock{entry.PiText(text)}, DurationMS: 200}
	}
	for want, p := range map[string]entry.Payload{
		"→ $ make test":                      call(entry.RunCommandTool, `{"command":"make test"}`),
		`→ run_command "{\"command\":\"ma"`:  call(entry.RunCommandTool, `"{\"command\":\"ma"`),
		`→ remember {"command":"make test"}`: call("remember", `{"command":"make test"}`),
		"→ edit_file src/a.go":               call(entry.EditFileTool, `{"path":"src/a.go","old_text":"one","new_text":"two"}`),
		"  ✓ edit_file /workspace/src/a.go +2 −1 (1s)": entry.PiToolResult{ToolCallID: "c", ToolName: entry.EditFileTool, DurationMS: 1000,
			Details: &entry.PiDetails{Path: "/workspace/src/a.go", Added: 2, Removed: 1}},
		"  ✓ bash (0s)\n    all of it (100 kB): arbe artifact get f1": entry.PiToolResult{ToolCallID: "c", ToolName: "bash", Details: &entry.PiDetails{WholeBytes: 100_000, ArtifactID: "f1"}},
		"  ✓ bash (0s)": entry.PiToolResult{ToolCallID: "c", ToolName: "bash", Details: &entry.PiDetails{WholeBytes: 100_000}},
		"→ write {\"path\":\"a.txt\"}\n    all of it (300 kB): arbe artifact get f1": entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{
			{Type: entry.PiCallBlock, ID: "c", Name: "write", Arguments: json.RawMessage(`{"path":"a.txt"}`), WholeBytes: 300_000, ArtifactID: "f1"}}},
		"  ✓ run_command (200ms)":                                 result(false, "fine\n[exit 0 · 200ms]"),
		"  ✗ run_command: boom [exit 3 · 200ms] (200ms)":          result(true, strings.Repeat("compiling\n", 100)+"boom\n[exit 3 · 200ms]"),
		"  ✗ run_command: the disk is full [did not run] (200ms)": result(true, "the disk is full\n[did not run]"),
	} {
		draft := entry.NewDraft("", "", p)
		if got := Steps(&arbev1.Entry{Type: draft.Type, Payload: string(draft.Payload)}); strings.Join(got, "\n") != want {
			t.Errorf("the lines are %q, want %q", got, want)
		}
	}
}
