//go:build linux

package dispatch_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// workshop is a room whose thread has a local sandbox.
func workshop(t testing.TB, script modeltest.Script) *room {
	t.Helper()
	return workshopWith(t, sandbox.Recipe{}, script)
}

func workshopWith(t testing.TB, recipe sandbox.Recipe, script modeltest.Script) *room {
	t.Helper()
	r := botsOn(t, newLocal(t, t.TempDir()), script)
	recipe.Driver = "local"
	env, err := r.boxes.CreateEnvironment(t.Context(), r.scope, "an environment", recipe)
	if err != nil {
		t.Fatal(detail(err))
	}
	r.th = r.threadWith(env.ID)
	return r
}

func TestACommandThatFailedIsAnErrorForTheModel(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		command string
		recipe  sandbox.Recipe
		failed  bool
	}{
		"fine\n[exit 0": {"echo fine", sandbox.Recipe{}, false},
		"boom\n[exit 3": {"echo boom; exit 3", sandbox.Recipe{}, true},
		"[did not run]": {"echo fine", sandbox.Recipe{Setup: "exit 7"}, true},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			r := workshopWith(t, c.recipe, calls(entry.RunCommandTool, map[string]string{"command": c.command}))
			r.says("q", "@bot go")
			r.answer("q")
			if p := of[entry.PiToolResult](r.entries())[0]; p.IsError != c.failed || !strings.Contains(p.Text(), says) {
				t.Errorf("the log has the result %+v", p)
			}
			if m := r.models.Requests()[1].Last(); m.IsError != c.failed || !strings.Contains(m.Text, says) {
				t.Errorf("the model reads %+v", m)
			}
		})
	}
}

func TestACallWithMalformedArgumentsIsNoCommand(t *testing.T) {
	t.Parallel()
	r := workshop(t, func(q *modeltest.Request) modeltest.Reply {
		if q.Last().Role == "tool" {
			return modeltest.Reply{Text: "done"}
		}
		return modeltest.Reply{Calls: []modeltest.Call{
			{Name: entry.RunCommandTool, Arguments: `{"command":"touch made`}, {Name: entry.RunCommandTool, Arguments: `{"cmd":"touch made"}`},
			{Name: entry.RunCommandTool, Arguments: `{"command":"echo one"}`},
		}}
	})
	r.says("q", "@bot go")
	c := r.answer("q")
	if ran := of[entry.Command](r.entries()); c.Turn.Commands != 1 || len(ran) != 1 || ran[0].Command != "echo one" {
		t.Errorf("the answer says that %d commands ran, and these did: %+v", c.Turn.Commands, ran)
	}
}

// What differs each time without any progress must not hide a loop: how long a command took, what time it is, and what the
// bot itself has added to a list.
func TestALoopIsNoticedThoughTimesDiffer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]modeltest.Call{
		"how long a command takes": {Name: entry.RunCommandTool, Arguments: `{"command":"sleep 0.01; echo same"}`},
		"the time":                 {Name: entry.RunCommandTool, Arguments: `{"command":"date; date -Ins; echo took $(date +%S).$(date +%N) seconds; false"}`},
		"the entries of a thread":  {Name: entry.ReadThreadTool, Arguments: `{}`},
		"the threads":              {Name: entry.ListThreadsTool, Arguments: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workshop(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Calls: []modeltest.Call{call}} })
			r.says("q", "@bot go")
			if e := r.end("q"); e.Reason != "loop" || e.Summary.Steps > 10 {
				t.Errorf("it ends with %+v after %d steps", e, e.Summary.Steps)
			}
		})
	}
	t.Run("but progress is not a loop", func(t *testing.T) {
		t.Parallel()
		r := workshop(t, func(q *modeltest.Request) modeltest.Reply {
			if strings.Contains(q.Last().Text, "12 of 12") {
				return modeltest.Reply{Text: "done"}
			}
			return modeltest.Reply{Calls: []modeltest.Call{{Name: entry.RunCommandTool, Arguments: `{"command":"echo x >> steps; echo $(wc -l < steps) of 12"}`}}}
		})
		r.says("q", "@bot go")
		if c := r.answer("q"); c.Text != "done" {
			t.Errorf("it answers %q", c.Text)
		}
	})
}
