package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/acp"
	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/harness/claude"
	"github.com/arbe-dev/arbe/internal/harness/codex"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// bash is the tool call with which each agent runs a command.
var bash = map[string]func(command string) modeltest.Call{
	"pi": func(c string) modeltest.Call { return modeltest.Call{Name: "bash", Arguments: object("command", c)} },
	"codex": func(c string) modeltest.Call {
		return modeltest.Call{Name: "exec_command", Arguments: object("cmd", c)}
	},
	"claude-code":  func(c string) modeltest.Call { return modeltest.Call{Name: "Bash", Arguments: object("command", c)} },
	"acp-opencode": func(c string) modeltest.Call { return modeltest.Call{Name: "bash", Arguments: object("command", c)} },
	"acp-gemini": func(c string) modeltest.Call {
		return modeltest.Call{Name: "run_shell_command", Arguments: object("command", c)}
	},
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, h := range all.Harnesses {
		name := h.Info().Name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, h, func(r *modeltest.Request) modeltest.Reply {
				if r.Last().Role == "tool" {
					return modeltest.Reply{Text: "The file is there now."}
				}
				return modeltest.Reply{Text: "I will write it.", Calls: []modeltest.Call{bash[name]("echo fixed > README.md; echo new > new.txt; echo it is done")}}
			})
			task := w.chat("fix the README")
			f := w.start().finish()
			if f.Outcome != "completed" || f.Result != "The file is there now." || f.Through != task {
				t.Errorf("the report is %+v", f)
			}
			if unknown := h.Info().Witness; (f.Usage == nil) != unknown || !unknown && f.Usage.Output != 40 { // the gateway counts it instead
				t.Errorf("its usage is %+v", f.Usage)
			}
			if got := w.types(); got != "assistant tool_result assistant run_finished" {
				t.Errorf("the log has %s", got)
			}
			if !w.has("pi.tool_result", "it is done")() {
				t.Error("the tool's output is not in the log")
			}
			if f.PatchFiles != 2 || f.PatchPath == "" || f.PatchError != "" {
				t.Errorf("the patch is %+v", f)
			}
			w.git("stash", "-u", "-q")
			w.git("apply", f.PatchPath)
			if got := w.git("status", "--porcelain"); got != " M README.md\n?? new.txt\n" {
				t.Errorf("the patch makes %q", got)
			}
			var chunks strings.Builder
			for id, text := range w.text {
				if !strings.HasPrefix(id, "run.1.0~") && !strings.HasPrefix(id, "run.1.1~") {
					t.Errorf("there is a delta %s", id)
				}
				chunks.WriteString(text)
			}
			if !strings.Contains(chunks.String(), `"kind":"text"`) {
				t.Errorf("the deltas are %q", chunks.String())
			}
		})
	}
}

// Claude Code asks before it runs a command, and asks its user a question. Questions and answers are entries, and the
// run's phase says that it waits. The run is cancelled while a second question waits, which ends the question.
func TestAnAgentAsksPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude.Harness{}, func(r *modeltest.Request) modeltest.Reply {
		if r.Last().Role != "tool" {
			return modeltest.Reply{Calls: []modeltest.Call{{Name: "AskUserQuestion", Arguments: `{"questions":[{"question":"Which file?","header":"File","options":[{"label":"a","description":"a"},{"label":"b","description":"b"}],"multiSelect":false}]}`}}}
		}
		if strings.Contains(r.Last().Text, "the third") {
			return modeltest.Reply{Calls: []modeltest.Call{bash["claude-code"]("echo one > made; cat made")}}
		}
		return modeltest.Reply{Calls: []modeltest.Call{bash["claude-code"]("echo two >> made")}}
	})
	w.spec.Ask = []string{entry.RunCommandTool}
	w.chat("make the file")
	r := w.start()
	answer := func(asked, answered string, p entry.PermissionAnswered) {
		w.await(w.ctx, "the question "+asked, w.has("signal.permission.asked", asked))
		w.await(w.ctx, "its beat", func() bool {
			return len(w.beats) > 0 && strings.Contains(string(w.beats[len(w.beats)-1].Payload), `"asking"`)
		})
		if answered != "" {
			w.sayAs(answered, person, p.Type(), p)
		}
	}
	answer("Which file?", "run.1.0.call0.answered", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved, Reason: "the third"})
	answer("cat made", "run.1.1.call0.answered", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved})
	answer("echo two", "", entry.PermissionAnswered{})
	w.say(person, entry.CancelRequested{}.Type(), entry.CancelRequested{Epoch: 1})
	if f := r.finish(); f.Outcome != "cancelled" {
		t.Errorf("the report is %+v", f)
	}
	if !w.has("pi.tool_result", "one")() || !w.has("signal.permission.answered", entry.Withdrawn)() {
		t.Error("the log lacks what ran, or that the last question is withdrawn")
	}
	if text, err := os.ReadFile(filepath.Join(w.spec.WorkDir, "made")); string(text) != "one\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func object(name, value string) string {
	text, _ := json.Marshal(map[string]string{name: value})
	return string(text)
}

// OpenCode asks before it runs a command. After a no, it receives the reason. After a yes, the command runs.
func TestAnAgentOfTheProtocolAsksPeople(t *testing.T) {
	t.Parallel()
	command := bash["acp-opencode"]
	w := newWorld(t, acp.OpenCode(), func(r *modeltest.Request) modeltest.Reply {
		switch {
		case r.Last().Role == "tool":
			return modeltest.Reply{Text: "It is made."}
		case strings.Contains(r.Asked(), "use another name"):
			return modeltest.Reply{Calls: []modeltest.Call{command("echo two > two; cat two")}}
		}
		return modeltest.Reply{Calls: []modeltest.Call{command("echo one > one")}}
	})
	w.spec.Ask = []string{entry.RunCommandTool}
	w.chat("make the file")
	r := w.start()
	w.await(w.ctx, "the first question", w.has("signal.permission.asked", "echo one"))
	w.sayAs("run.1.0.call0.answered", person, entry.PermissionAnswered{}.Type(), entry.PermissionAnswered{Epoch: 1, Outcome: entry.Denied, Reason: "use another name"})
	w.await(w.ctx, "the second question", w.has("signal.permission.asked", "cat two"))
	if _, err := os.ReadFile(filepath.Join(w.spec.WorkDir, "two")); err == nil {
		t.Error("it ran before the yes")
	}
	w.sayAs("run.1.1.call0.answered", person, entry.PermissionAnswered{}.Type(), entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved})
	if f := r.finish(); f.Outcome != "completed" || f.Result != "It is made." {
		t.Errorf("the report is %+v", f)
	}
	if _, err := os.ReadFile(filepath.Join(w.spec.WorkDir, "one")); err == nil {
		t.Error("what a person said no to ran")
	}
	if !w.has("pi.assistant", "cat two")() || !w.has("pi.tool_result", `"isError":true`)() || !w.has("pi.tool_result", "two")() {
		t.Error("the log lacks a result")
	}
}

// Codex asks before it changes a file, if that needs approval, and asks its user a question. It runs commands without asking.
func TestCodexAsksPeople(t *testing.T) {
	t.Parallel()
	patch := func(name string) modeltest.Call {
		return bash["codex"]("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: " + name + "\n+hello\n*** End Patch\nEOF\n")
	}
	w := newWorld(t, codex.Harness{}, func(r *modeltest.Request) modeltest.Reply {
		switch {
		case strings.Contains(r.Asked(), "use another name"):
			if r.Last().Role == "tool" {
				return modeltest.Reply{Text: "It is made."}
			}
			return modeltest.Reply{Calls: []modeltest.Call{patch("two")}}
		case strings.Contains(r.Last().Text, "the third"):
			return modeltest.Reply{Calls: []modeltest.Call{patch("one")}}
		case r.Last().Role == "tool":
			return modeltest.Reply{Calls: []modeltest.Call{{Name: "request_user_input", Arguments: `{"questions":[{"id":"q","header":"File","question":"Which file?","options":[{"label":"a","description":"a"},{"label":"b","description":"b"}]}]}`}}}
		}
		return modeltest.Reply{Calls: []modeltest.Call{bash["codex"]("echo it ran")}}
	})
	w.spec.Ask = []string{entry.WriteFileTool}
	w.chat("make the file")
	r := w.start()
	answer := func(asked, answered string, p entry.PermissionAnswered) {
		w.await(w.ctx, "the question "+asked, w.has("signal.permission.asked", asked))
		w.sayAs(answered, person, p.Type(), p)
	}
	answer("Which file?", "run.1.1.call0.answered", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved, Reason: "the third"})
	answer("workspace/one", "run.1.2.call0.answered", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Denied, Reason: "use another name"})
	answer("workspace/two", "run.1.3.call0.answered", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved})
	if f := r.finish(); f.Outcome != "completed" || f.Result != "It is made." {
		t.Errorf("the report is %+v", f)
	}
	for name, there := range map[string]bool{"one": false, "two": true} {
		if _, err := os.Stat(filepath.Join(w.spec.WorkDir, name)); (err == nil) != there {
			t.Errorf("the file %s: %v", name, err)
		}
	}
	if !w.has("pi.tool_result", "it ran")() || !w.has("pi.tool_result", "the third")() {
		t.Errorf("the log is\n%s", w.dump())
	}
}

// An agent with a key of its environment asks the provider itself. Without the key, the run fails and says how to bind it.
func TestTheKeyOfAnEnvironment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pi", "codex", "claude-code"} {
		h, _ := all.Named(name)
		for _, key := range []string{"", "sk-own"} {
			w := newWorld(t, h, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "Done."} })
			w.spec.Model.BaseURL, w.spec.Model.KeyEnv = w.model.URL, "PROVIDER_KEY"
			w.env = append(w.env, "PROVIDER_KEY="+key)
			w.chat("answer")
			f := w.start().finish()
			if key == "" && (f.Outcome != "failed" || !strings.Contains(f.Error, "bind the secret") || len(w.model.Requests()) > 0) {
				t.Errorf("%s without the key: %+v", name, f)
			}
			if key != "" && (f.Outcome != "completed" || f.Result != "Done.") {
				t.Errorf("%s: %+v", name, f)
			}
			for _, r := range w.model.Requests() {
				if r.Key != key {
					t.Errorf("%s asks with the key %q", name, r.Key)
				}
			}
		}
	}
}

// The ids of a run's entries continue where the environment says.
func TestTheFirstIDOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "Done."} })
	w.env, w.next = append(w.env, "ARBE_PI_MIRROR_NEXT_INDEX=7"), 7
	w.chat("answer")
	w.start().finish()
	if log := w.dump(); !strings.Contains(log, " run.1.7 pi.assistant ") || !strings.Contains(log, " run.1.8 signal.thread.run_finished ") {
		t.Errorf("the log is\n%s", log)
	}
}
