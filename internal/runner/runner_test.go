package runner_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// bash is the tool call with which each agent runs a command.
var bash = map[string]func(command string) modeltest.Call{
	"pi": func(c string) modeltest.Call { return modeltest.Call{Name: "bash", Arguments: object("command", c)} },
	"codex": func(c string) modeltest.Call {
		return modeltest.Call{Name: "exec_command", Arguments: object("cmd", c)}
	},
	"claude-code": func(c string) modeltest.Call { return modeltest.Call{Name: "Bash", Arguments: object("command", c)} },
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
			if f.Outcome != "completed" || f.Result != "The file is there now." || f.Through != task || f.Usage == nil || f.Usage.Output != 40 {
				t.Errorf("the report is %+v", f)
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

func object(name, value string) string {
	text, _ := json.Marshal(map[string]string{name: value})
	return string(text)
}
