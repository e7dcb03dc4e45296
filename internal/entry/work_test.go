package entry_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// logOf makes the entries of a log.
func logOf(drafts ...entry.Draft) (log []entry.Entry) {
	for i, d := range drafts {
		log = append(log, entry.Entry{Seq: int64(i + 1), ID: d.ID, Author: d.Author, Type: d.Type, Payload: d.Payload, Time: time.Unix(int64(i), 0)})
	}
	return log
}

func TestALedgerPairsEntriesInWhateverOrderTheyCome(t *testing.T) {
	t.Parallel()
	log := logOf(
		entry.NewDraft("q", "ada", entry.Chat{Text: "@bee why?"}),
		entry.NewDraft("turn.t.start", "", entry.TurnStarted{TurnID: "t", AgentID: "bee", EntryID: "q", Reason: "mention"}),
		entry.NewDraft("turn.t.1", "bee", entry.PiAssistant{Turn: "t", StopReason: entry.PiToolUse, Content: []entry.PiBlock{{Type: entry.PiCallBlock, ID: "a", Name: "run_command"}}}),
		entry.NewDraft("turn.t.1.call0.asked", "", entry.PermissionAsked{ApprovalID: "p", TurnID: "t", AgentID: "bee", CallID: "turn.t.1.call0", Tool: "run_command"}),
		entry.NewDraft("", "", entry.LimitNear{TurnID: "t", AgentID: "bee", Limit: "turn_usd"}),
		entry.NewDraft("turn.t.1.call0.answered", "ada", entry.PermissionAnswered{ApprovalID: "p", TurnID: "t", AgentID: "bee", Outcome: entry.Approved}),
		entry.NewDraft("turn.t.1.call0.run", "bee", entry.Command{Command: "make"}),
		entry.NewDraft("turn.t.1.call0.run.result", "", entry.CommandResult{CommandID: "turn.t.1.call0.run", CancelledBy: "ada"}),
		entry.NewDraft("turn.t.1.call0", "bee", entry.PiToolResult{Turn: "t", ToolCallID: "a"}),
		entry.NewDraft("turn.t.2", "bee", entry.Chat{Text: "because", Turn: &entry.TurnSummary{TurnID: "t", Answers: []string{"q"}}}),
	)
	for range 50 {
		var l entry.Ledger
		shuffled := slices.Clone(log)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, e := range shuffled {
			l.Learn(e)
		}
		size := l.Size()
		for _, e := range shuffled {
			l.Learn(e)
		}
		if l.Size() != size {
			t.Fatalf("learned twice, it holds %d bytes instead of %d", l.Size(), size)
		}
		for _, want := range []struct {
			kind           entry.WorkKind
			id             string
			opened, closed int64
		}{
			{entry.ChatWork, "q", 1, 0}, {entry.TurnWork, "t", 2, 10}, {entry.StepWork, "turn.t.1", 0, 3},
			{entry.CallWork, "turn.t.1.call0", 3, 9}, {entry.ApprovalWork, "p", 4, 6}, {entry.CommandWork, "turn.t.1.call0.run", 7, 8},
		} {
			p := l.Of(want.kind, want.id)
			if seq(p.Opened()) != want.opened || seq(p.Completed()) != want.closed {
				t.Errorf("%v is opened by %d and completed by %d, want %d and %d", want.id, seq(p.Opened()), seq(p.Completed()), want.opened, want.closed)
			}
		}
		if c, ok := entry.Latest[entry.Command](l.Of(entry.CallWork, "turn.t.1.call0")); !ok || c.Command != "make" {
			t.Errorf("the call ran %v", c)
		}
		if _, ok := entry.Latest[entry.LimitNear](l.Of(entry.TurnWork, "t")); !ok {
			t.Error("the turn has no note")
		}
		if id, open := l.OldestOpen(entry.CommandWork); open {
			t.Errorf("%s is open", id)
		}
	}
}

func TestWhatNamesNoCommandIsForTheOldest(t *testing.T) {
	t.Parallel()
	log := logOf(
		entry.NewDraft("c1", "ada", entry.Command{Command: "one"}),
		entry.NewDraft("c2", "ada", entry.Command{Command: "two"}),
		entry.NewDraft("prepared.b", "", entry.EnvironmentPrepared{SandboxID: "b"}),
		entry.NewDraft("c1.result", "", entry.CommandResult{CommandID: "c1"}),
	)
	var l entry.Ledger
	l.Learn(log[2])
	if _, placed := l.Placed("prepared.b"); placed {
		t.Error("without a command it is for one")
	}
	for range 2 { // the second time c1 has ended
		for _, e := range log {
			l.Learn(e)
		}
		if w, _ := l.Placed("prepared.b"); w.ID != "c1" {
			t.Errorf("it is for %q, want c1", w.ID)
		}
	}
	l.Forget(func(w entry.Work, _ *entry.Progress) bool { return w.ID == "c2" })
	if id, _ := l.OldestOpen(entry.CommandWork); id != "c2" || l.Of(entry.CommandWork, "c1") != nil {
		t.Errorf("it keeps %q", id)
	}
}

func TestANoteDoesNotEndAWait(t *testing.T) {
	t.Parallel()
	var l entry.Ledger
	for _, e := range logOf(
		entry.NewDraft("", "", entry.TurnWaiting{TurnID: "t", AgentID: "bee"}),
		entry.NewDraft("", "", entry.TurnSteered{TurnID: "t", AgentID: "bee", EntryID: "q"}),
		entry.NewDraft("", "", entry.LimitNear{TurnID: "t", AgentID: "bee"}),
	) {
		l.Learn(e)
	}
	if last := l.Of(entry.TurnWork, "t").Last(); seq(last) != 1 {
		t.Errorf("the turn's last step is entry %d, want the wait", seq(last))
	}
	var nothing *entry.Progress
	if nothing.Opened() != nil || nothing.Completed() != nil || nothing.First() != nil || nothing.Last() != nil {
		t.Error("of nothing something is known")
	}
}

func TestAnEmptyIDIsNoWork(t *testing.T) {
	t.Parallel()
	for _, k := range entry.Kinds() {
		for _, part := range entry.Parts(entry.Entry{Type: k.Type, Payload: []byte(`{}`)}) {
			if part.Stage != entry.UpdatesOldest {
				t.Errorf("an empty %s is a part of %v", k.Type, part)
			}
		}
	}
}

func seq(s *entry.Seen) int64 {
	if s == nil {
		return 0
	}
	return s.Seq
}

// A new kind that only says something touches four places, with all its faces: its words and its part in a work, its line in
// the registry, its message for clients, and its line for pages. The CLI and both clients show it without knowing it.
func TestAKindCostsFourPlaces(t *testing.T) {
	t.Parallel()
	want := []string{"internal/entry/registry.go", "internal/entry/turn.go", "proto/arbe/v1/payload.proto", "web/transcript/kinds.go"}
	for name, pattern := range map[string]string{
		"LimitNear":    `LimitNear|limitNear|limit_near`,
		"TurnFellBack": `TurnFellBack|turnFellBack|turn_fell_back`,
	} {
		if got := filesThatName(t, regexp.MustCompile(pattern)); !slices.Equal(got, want) {
			t.Errorf("%s is named in %s, want %s", name, strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
}

// filesThatName returns the sources that name something, without generated files, tests, and internal/turn, which writes it.
func filesThatName(t *testing.T, what *regexp.Regexp) (found []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	skipped := map[string]bool{".git": true, ".tools": true, "node_modules": true, "gen": true, "dist": true, "bin": true, "test": true}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (skipped[d.Name()] || rel == filepath.Join("internal", "turn")):
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(path, "_test.go"):
			return nil
		case !slices.Contains([]string{".go", ".templ", ".proto", ".ts", ".js", ".sql"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a source: %w", err)
		}
		if what.Match(text) && !bytes.HasPrefix(text, []byte("// Code generated ")) {
			found = append(found, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
