package all_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
)

// BenchmarkRebuild measures how long it takes to rebuild a session of 2,000 turns, each with a tool call of a few kilobytes,
// from the entries of its thread.
func BenchmarkRebuild(b *testing.B) {
	const turns = 2000
	output := strings.Repeat("a line of what the tool printed\n", 100)
	var entries []entry.Entry
	add := func(author string, p entry.Payload) {
		d := entry.NewDraft(fmt.Sprint(len(entries)), author, p)
		entries = append(entries, entry.Entry{Seq: int64(len(entries) + 1), ID: d.ID, Author: author, Type: d.Type, Payload: d.Payload})
	}
	for n := range turns {
		id := fmt.Sprint("call-", n)
		add("ada", entry.Chat{Text: fmt.Sprint("Do step ", n, ".")})
		add("pi", entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{entry.PiText("I look."),
			{Type: entry.PiCallBlock, ID: id, Name: "bash", Arguments: []byte(`{"command":"ls"}`)}}})
		add("pi", entry.PiToolResult{Harness: "pi", ToolCallID: id, ToolName: "bash", Content: []entry.PiBlock{entry.PiText(output)}})
		add("pi", entry.PiAssistant{Harness: "pi", StopReason: entry.PiStopped, Content: []entry.PiBlock{entry.PiText("Done.")}})
	}
	for _, h := range all.Harnesses {
		b.Run(h.Info().Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				messages := harness.Transcript(entries, "pi", int64(len(entries)))
				files, session, err := h.Rebuild(harness.Job{Dir: "/workspace", Session: "/session"}, messages)
				if err != nil || len(messages) != 4*turns || len(files) == 0 || session == "" {
					b.Fatalf("%d messages make %d files: %v", len(messages), len(files), err)
				}
			}
		})
	}
}
