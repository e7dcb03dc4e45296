package entry_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// samples holds a well-formed payload of every kind. A new kind needs a line here.
var samples = []entry.Payload{
	entry.Chat{Text: "hello *@bob*", ReplyTo: "e1"},
	entry.Command{Argv: []string{"printf", "%s", "a b"}, SandboxID: "b1", TimeoutMS: 1000, EnvironmentID: "v1",
		Terminal: &entry.Terminal{Rows: 24, Columns: 80, Kind: "xterm", Keep: true}, Directory: "sub", Env: map[string]string{"A": "b"}, Changes: "f1"},
	entry.CommandResult{CommandID: "c1", SandboxID: "b1", ExitCode: 124, Output: "head", OutputTail: "tail", OutputBytes: 100, Truncated: true,
		ArtifactID: "a1", ArtifactBytes: 90, ArtifactPart: true, DurationMS: 1500, TimedOut: true, Terminal: true},
	entry.CommandWaiting{CommandID: "c1", For: entry.WaitHouse, Limit: 16},
	entry.PiAssistant{Turn: "n1", Content: []entry.PiBlock{entry.PiText("look"), {Type: entry.PiCallBlock, ID: "1", Name: "run_command", Arguments: json.RawMessage(`{"command":"ls"}`), WholeBytes: 300_000, ArtifactID: "f1"}},
		API: "anthropic-messages", Provider: "anthropic", Model: "claude", Usage: entry.PiUsage{Input: 3, Output: 4, TotalTokens: 7}, StopReason: entry.PiToolUse, Timestamp: 1},
	entry.PiToolResult{Turn: "n1", ToolCallID: "1", ToolName: "run_command", Content: []entry.PiBlock{entry.PiText("a.txt")}, Timestamp: 2,
		Details: &entry.PiDetails{ArtifactID: "f1", WholeBytes: 100_000}},
	entry.PiCompaction{Turn: "n1", Summary: "they looked at files", FirstKeptSeq: 40, TokensBefore: 100_000},
	entry.TurnStarted{TurnID: "n1", AgentID: "a2", EntryID: "e1", Reason: "mention", PolicyID: "p1"},
	entry.TurnSteered{TurnID: "n1", AgentID: "a2", EntryID: "e2", Reason: "mention"},
	entry.TurnFellBack{TurnID: "n1", AgentID: "a2", Model: "anthropic/claude", Fallback: "openai/gpt", Reason: "overload", Message: "overloaded"},
	entry.TurnWaiting{TurnID: "n1", AgentID: "a2", Provider: "Anthropic", Reason: "rate_limit", Message: "too many requests", DelayMS: 1500, Tries: 2},
	entry.LimitNear{TurnID: "n1", AgentID: "a2", Limit: "turn_usd", Used: 0.81, Max: 1},
	entry.PermissionAsked{ApprovalID: "p1", TurnID: "n1", AgentID: "a2", CallID: "turn.n1.1.call0", Tool: "run_command", Arguments: json.RawMessage(`{"command":"make"}`), ExpiresMS: 1},
	entry.PermissionAnswered{ApprovalID: "p1", TurnID: "n1", AgentID: "a2", Outcome: "denied", AnsweredBy: "a1", Reason: "too early"},
	entry.TurnEnded{TurnID: "n1", AgentID: "a2", EntryID: "e1", Outcome: entry.TurnFailed, Reason: "key", Message: "anthropic refuses the key", Next: "set another",
		Summary: &entry.TurnSummary{TurnID: "n1", Model: "anthropic/claude", Steps: 2, Commands: 1, Usage: entry.TurnUsage{Input: 3, Output: 4, CostMicros: 20_000}, DurationMS: 40_000}},
	entry.Skipped{AgentID: "a2", EntryID: "e1", Reason: "cooldown", Explanation: "it answered a moment ago", PolicyID: "p1"},
	entry.SandboxResumed{SandboxID: "b2", PreviousSandboxID: "b1", Left: true, SavedMS: 1, Tree: []entry.TreePart{{Folder: "web", Commit: "c1", Files: 2, Commits: 1, ArtifactID: "f1", Missing: "a file", Problem: "no"}}},
	entry.SandboxWoken{SandboxID: "b1", TookMS: 3200},
	entry.HostRefused{CommandID: "c1", SandboxID: "b1", EnvironmentID: "v1", Host: "example.com:22", Program: "ssh", Private: true},
	entry.HostAllowed{EnvironmentID: "v1", Host: "example.com"},
	entry.StatusChanged{From: "idle", To: "running", Reason: "a message came", Epoch: 3, Policy: "driver"},
	entry.AgentSpawn{ChildThreadID: "t2", AgentID: "a2", Runtime: "pi", Task: "fix the test"},
	entry.Heartbeat{Epoch: 3, Phase: "tool", LastTool: "bash", Through: 12},
	entry.RunFinished{Epoch: 3, Outcome: "failed", StopReason: "error", ExitCode: new(1), Error: "overloaded", Phase: "execution", LastLines: "boom",
		Usage: &entry.TurnUsage{Input: 3, Output: 4}, Result: "I tried", Through: 12, PatchPath: "/tmp/tree.patch", PatchArtifactID: "f1"},
	entry.PiFailed{Epoch: 3, Error: "overloaded", Next: "continue later", ExitCode: new(1), Phase: "execution", LastLines: "boom"},
	entry.SessionOrphaned{Epoch: 3, Reason: "its sandbox is gone", LastLines: "boom", Phase: "result-collection"},
	entry.CancelRequested{Epoch: 3},
	entry.ChildFinished{ChildThreadID: "t2", Epoch: 3, Outcome: "completed", Runtime: "pi", DurationMS: 40_000, Usage: &entry.TurnUsage{Input: 3}, PatchArtifactID: "f1", Wakes: "a1", Root: "t1/e1"},
	entry.ChildOverdue{ChildThreadID: "t2", Epoch: 3, RunningMS: 7_200_000, Runtime: "pi", Doing: "running bash", AgentID: "a1", Wakes: "a1", Root: "t1/e1"},
	entry.QueueEdited{EntryID: "e1", Text: "fix the other test"},
	entry.QueueMoved{EntryID: "e1", Before: "e2"},
	entry.QueueTimed{EntryID: "e1", Queue: true},
	entry.QueueCancelled{EntryID: "e1"},
	entry.QueueTaken{Epoch: 3, EntryIDs: []string{"e2", "e1"}, Read: 12},
	entry.ChatEdited{EntryID: "e1", Seq: 3, Text: "hello bob"},
	entry.ChatReacted{EntryID: "e1", Seq: 3, Emoji: "👍", Removed: true},
	entry.ChatDeleted{EntryID: "e1", Seq: 3},
	entry.Forked{ThreadID: "t1", Seq: 12},
	entry.HouseCreated{HouseID: "h1", Name: "Home"},
	entry.Invited{InviteID: "i1", Role: "member", Note: "Bob from work", By: "Ada"},
	entry.InviteRevoked{InviteID: "i1", Role: "member", Note: "Bob from work", By: "Ada"},
	entry.MemberJoined{AgentID: "a1", Name: "Bob", Role: "member", InviteID: "i1", InvitedBy: "Ada"},
	entry.MemberRemoved{AgentID: "a1", Name: "Bob", By: "Ada"},
	entry.RoleChanged{AgentID: "a1", Name: "Bob", From: "member", To: "owner", By: "Ada"},
	entry.BotCreated{AgentID: "a1", Handle: "reviewer", Name: "Reviewer", By: "Ada"},
	entry.BotChanged{AgentID: "a1", Handle: "reviewer", Name: "Reviewer", Changed: []string{"model", "tools"}, By: "Ada"},
	entry.EnvironmentPrepared{SandboxID: "b1", Steps: []entry.PreparationStep{{Name: "clone", DurationMS: 1200, Output: "done"}}},
}

func TestEveryKind(t *testing.T) {
	t.Parallel()
	sampled := map[string]bool{}
	for _, p := range samples {
		sampled[p.Type()] = true
		t.Run(p.Type(), func(t *testing.T) {
			draft := entry.NewDraft("id", "author", p)
			if err := entry.Check(draft, entry.Server); err != nil {
				t.Errorf("arbe itself may not write it: %v", err)
			}
			got, ok := entry.Decode(entry.Entry{Type: draft.Type, Payload: draft.Payload})
			if !ok || !reflect.DeepEqual(got, p) {
				t.Errorf("it is read as %v", got)
			}
			if got.Plain() == "" {
				t.Error("it says nothing in plain words")
			}
			empty := entry.Draft{Type: p.Type(), Payload: json.RawMessage("{}")}
			if err := entry.Check(empty, entry.Server); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), ": ") {
				t.Errorf("of an empty one it says %v, want the field that is missing", err)
			}
			if _, ok := entry.Decode(entry.Entry{Type: p.Type(), Payload: json.RawMessage(`"text"`)}); ok {
				t.Error("it reads what is not its payload")
			}
		})
	}
	seen := map[string]bool{}
	for _, k := range entry.Kinds() {
		if !sampled[k.Type] {
			t.Errorf("%s has no sample", k.Type)
		}
		if seen[k.Type] {
			t.Errorf("%s is registered twice", k.Type)
		}
		seen[k.Type] = true
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("lets a runner write what its agent does, without arbe's own marks", func(t *testing.T) {
		for _, p := range []entry.Payload{
			entry.Chat{Text: "hello"}, entry.PiAssistant{StopReason: entry.PiStopped}, entry.PiToolResult{ToolCallID: "1"}, entry.PiCompaction{Summary: "they looked", FirstKeptSeq: 1},
			entry.Heartbeat{Epoch: 1}, entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted},
		} {
			if err := entry.Check(entry.NewDraft(entry.RunEntryID(1, 0), "", p), entry.Runner); err != nil {
				t.Errorf("%s: %v", p.Type(), err)
			}
		}
		for what, p := range map[string]entry.Payload{
			"a status": entry.StatusChanged{To: "completed"}, "a result for the parent": entry.ChildFinished{ChildThreadID: "t", Outcome: "completed"}, "a command": entry.Command{Command: "true"},
			"a chat as another run's result": entry.Chat{Text: "done", Run: &entry.RunSummary{ThreadID: "t"}}, "a step of a bot's turn": entry.PiAssistant{Turn: "n1", StopReason: entry.PiStopped},
			"a tool's result of a bot's turn": entry.PiToolResult{Turn: "n1", ToolCallID: "1"}, "an artifact with a whole result": entry.PiToolResult{ToolCallID: "1", Details: &entry.PiDetails{ArtifactID: "f1"}},
			"an artifact with whole arguments": entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{{Type: entry.PiCallBlock, ID: "1", ArtifactID: "f1"}}}, "an artifact": entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, PatchArtifactID: "f1"},
		} {
			if err := entry.Check(entry.NewDraft("", "", p), entry.Runner); fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("keeps the ids of runs for runners", func(t *testing.T) {
		if err := entry.Check(entry.NewDraft(entry.RunEntryID(1, 0), "", entry.Chat{Text: "mine"}), entry.Anyone); fault.CodeOf(err) != fault.Invalid || !strings.HasPrefix(err.Error(), "id: ") {
			t.Errorf("it says %v", err)
		}
		for id, want := range map[string]string{"run.3.17": "run.3", "run.3.17.call0": "run.3", "run.3": "", "run.03.1": "", "run.-1.1": "", "run.x.1": "", "turn.3.1": "", "run.0.1": ""} {
			if got := entry.RunOf(id); got != want {
				t.Errorf("%s is of run %q, want %q", id, got, want)
			}
		}
	})
	t.Run("lets anyone write a chat, and arbe alone the rest", func(t *testing.T) {
		for _, p := range samples {
			err := entry.Check(entry.NewDraft("", "", p), entry.Anyone)
			if chat := p.Type() == "chat"; chat && err != nil {
				t.Errorf("a chat: %v", err)
			} else if !chat && (fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), `use one of ["chat"]`)) {
				t.Errorf("%s: %v", p.Type(), err)
			}
		}
	})
	t.Run("keeps the ids of results for results", func(t *testing.T) {
		id := entry.ResultID("c1")
		if err := entry.Check(entry.NewDraft(id, "", entry.CommandResult{CommandID: "c1"}), entry.Server); err != nil {
			t.Errorf("a result: %v", err)
		}
		for _, p := range []entry.Payload{entry.Chat{Text: "mine"}, entry.Command{Command: "true"}} {
			if err := entry.Check(entry.NewDraft(id, "", p), entry.Server); fault.CodeOf(err) != fault.Invalid || !strings.HasPrefix(err.Error(), "id: ") {
				t.Errorf("%s: %v", p.Type(), err)
			}
		}
	})
	for what, c := range map[string]struct {
		draft entry.Draft
		code  fault.Code
		field string
	}{
		"an unknown type":                {chat(`{"text":"a"}`, func(d *entry.Draft) { d.Type = "shout" }), fault.Invalid, "type"},
		"a type longer than a line":      {chat(`{"text":"a"}`, func(d *entry.Draft) { d.Type = strings.Repeat("x", 5000) }), fault.Invalid, "type"},
		"an id of more than 200 bytes":   {chat(`{"text":"a"}`, func(d *entry.Draft) { d.ID = strings.Repeat("x", 201) }), fault.Invalid, "id"},
		"an id in invalid UTF-8":         {chat(`{"text":"a"}`, func(d *entry.Draft) { d.ID = "\xff" }), fault.Invalid, "id"},
		"an id with a NUL byte":          {chat(`{"text":"a"}`, func(d *entry.Draft) { d.ID = "a\x00" }), fault.Invalid, "id"},
		"a payload that is too large":    {chat(`{"text":"`+strings.Repeat("x", entry.MaxPayload)+`"}`, nil), fault.Exhausted, "payload"},
		"a payload in invalid UTF-8":     {chat("{\"text\":\"\xff\"}", nil), fault.Invalid, "payload"},
		"a payload that is not JSON":     {chat(`text`, nil), fault.Invalid, "payload"},
		"no payload":                     {chat(``, nil), fault.Invalid, "payload"},
		"a payload that is no object":    {chat(`[]`, nil), fault.Invalid, "payload"},
		"a field of another type":        {chat(`{"text":["a"]}`, nil), fault.Invalid, "text"},
		"a blank text":                   {chat(`{"text":" \n\u2003"}`, nil), fault.Invalid, "text"},
		"a text that is too long":        {chat(`{"text":"`+strings.Repeat("x", entry.MaxText+1)+`"}`, nil), fault.Exhausted, "text"},
		"the mark of a credential":       {chat(`{"text":"a","confined":true}`, nil), fault.Forbidden, "confined"},
		"a reply to what cannot be said": {chat(`{"text":"a","reply_to":"`+strings.Repeat("x", 201)+`"}`, nil), fault.Invalid, "reply_to"},
	} {
		t.Run("refuses "+what+", naming the field, in a few words", func(t *testing.T) {
			err := entry.Check(c.draft, entry.Anyone)
			if fault.CodeOf(err) != c.code || !strings.HasPrefix(err.Error(), c.field+": ") || len(err.Error()) > 300 {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestConfine(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"a"}`:                           `{"text":"a","confined":true}`,
		" { \"text\":\"}\",  \"mine\": 1.50} \n": ` { "text":"}",  "mine": 1.50,"confined":true}`,
		`{"text":"a","confined":true}`:           `{"confined":true,"text":"a"}`,
		`{"\u0063onfined":false,"text":"a"}`:     `{"confined":true,"text":"a"}`,
	} {
		got := entry.Confine(chat(payload, nil))
		if c, ok := entry.As[entry.Chat](entry.Entry{Type: got.Type, Payload: got.Payload}); string(got.Payload) != want || !ok || !c.Confined {
			t.Errorf("%s becomes %s, want %s", payload, got.Payload, want)
		}
		if err := entry.Check(got, entry.Server); err != nil {
			t.Errorf("%s: %v", got.Payload, err)
		}
	}
	command := entry.NewDraft("", "", entry.Command{Command: "true"})
	if got := entry.Confine(command); string(got.Payload) != string(command.Payload) {
		t.Errorf("a command becomes %s", got.Payload)
	}
}

// chat returns a draft with this payload, changed by change unless that is nil.
func chat(payload string, change func(*entry.Draft)) entry.Draft {
	d := entry.Draft{Type: "chat", Payload: json.RawMessage(payload)}
	if change != nil {
		change(&d)
	}
	return d
}

func TestReading(t *testing.T) {
	t.Parallel()
	said := entry.Entry{Type: "chat", Payload: json.RawMessage(`{"text":"hello","mood":"good"}`)}
	t.Run("takes an entry for its own kind only", func(t *testing.T) {
		if c, ok := entry.As[entry.Chat](said); !ok || c.Text != "hello" {
			t.Errorf("as a chat it is %v", c)
		}
		if c, ok := entry.As[entry.Command](said); ok {
			t.Errorf("as a command it is %v", c)
		}
	})
	t.Run("does not fail on a kind nobody knows", func(t *testing.T) {
		if p, ok := entry.Decode(entry.Entry{Type: "pi.dream", Payload: json.RawMessage(`{}`)}); ok {
			t.Errorf("it is %v", p)
		}
	})
}

func TestName(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "", "  a b\t": "a b", "<b>": "<b>", "می\u200cخواهم": "می\u200cخواهم", "👩\u200d🚀": "👩\u200d🚀", "❤\ufe0f\u200d🔥": "❤\ufe0f\u200d🔥",
		"a\u200db": "ab", "\u200d a": "a", "é\u200d": "é", " \u200c": "", strings.Repeat("ü", 10): strings.Repeat("ü", 10)} {
		if got, err := entry.Name("name", given, 10); err != nil || got != want {
			t.Errorf("%q becomes %q: %v", given, got, err)
		}
	}
	for _, given := range []string{"a\nb", "a\x00", "a\x1b[31m", "a\u0085b", "\xff", "a\u202eb", "a\u2066b", "a\u200bb", "\ufeffa", "a\u2028b", "a\u2029b", "a\u3164", "a\U000e0041", strings.Repeat("ü", 11)} {
		if got, err := entry.Name("title", given, 10); fault.CodeOf(err) != fault.Invalid || !strings.HasPrefix(err.Error(), "title: ") {
			t.Errorf("%q becomes %q: %v", given, got, err)
		}
	}
}
