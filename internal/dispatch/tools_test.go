//go:build linux

package dispatch_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// sandboxBench returns a bench with a bot whose thread has a local sandbox.
func sandboxBench(t testing.TB, script modeltest.Script) *botBench {
	t.Helper()
	return sandboxBenchWith(t, sandbox.Recipe{}, script)
}

func sandboxBenchWith(t testing.TB, recipe sandbox.Recipe, script modeltest.Script) *botBench {
	t.Helper()
	r := botsOn(t, realBoxes(t), script)
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
			r := sandboxBenchWith(t, c.recipe, calls(entry.RunCommandTool, map[string]string{"command": c.command}))
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
	r := sandboxBench(t, func(q *modeltest.Request) modeltest.Reply {
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

// Details that differ each time without any progress must not hide a loop: a command's duration, the time of day, and what
// the bot itself has added to a list.
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
			r := sandboxBench(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Calls: []modeltest.Call{call}} })
			r.says("q", "@bot go")
			if e := r.end("q"); e.Reason != "loop" || e.Summary.Steps > 10 {
				t.Errorf("it ends with %+v after %d steps", e, e.Summary.Steps)
			}
		})
	}
	t.Run("but progress is not a loop", func(t *testing.T) {
		t.Parallel()
		r := sandboxBench(t, func(q *modeltest.Request) modeltest.Reply {
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

// toolResults returns the results of its calls that the model read.
func (r *botBench) toolResults() (texts []string) {
	for _, p := range of[entry.PiToolResult](r.entries()) {
		texts = append(texts, p.Text())
	}
	return texts
}

// A bot can read a whole thread, page by page, and each of its entries to the end.
func TestABotReadsAThreadWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("⟦word⟧ of many\n", 4000) // some characters are spelled out, so a page holds less of the text
	on := regexp.MustCompile(`(?m)^\((?:later ones: from (\d+)|\d+ more bytes: read entry (\d+) with offset (\d+))\)$`)
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		if q.Last().Role != "tool" {
			return modeltest.Reply{Calls: []modeltest.Call{{Name: entry.ReadThreadTool, Arguments: `{"from":1,"limit":200}`}, {Name: entry.ReadThreadTool, Arguments: `{"entry":1}`}}}
		}
		var next []modeltest.Call
		for _, m := range slices.Backward(q.Messages) {
			if m.Role != "tool" {
				break
			}
			switch found := on.FindStringSubmatch(m.Text[max(len(m.Text)-200, 0):]); {
			case found == nil:
			case found[1] != "":
				next = append(next, modeltest.Call{Name: entry.ReadThreadTool, Arguments: `{"limit":200,"from":` + found[1] + `}`})
			default:
				next = append(next, modeltest.Call{Name: entry.ReadThreadTool, Arguments: `{"entry":` + found[2] + `,"offset":` + found[3] + `}`})
			}
		}
		if len(next) == 0 {
			return modeltest.Reply{Text: "I read it all."}
		}
		return modeltest.Reply{Calls: next}
	})
	r.settings.Model = "claude-sonnet-4-5"
	r.says("long", long)
	r.talk("entry", 28_000)
	r.says("q", "@bot read it all")
	if c := r.answer("q"); c.Text != "I read it all." {
		t.Fatalf("it answers %q", c.Text)
	}
	var whole strings.Builder
	seen := map[string]int{}
	for _, text := range r.toolResults() {
		if strings.Contains(text, "bytes left out") || len(text) > 48<<10 {
			t.Errorf("a page is cut: %d bytes", len(text))
		}
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if line, isWord := strings.CutPrefix(line, "  <U+27E6>word"); isWord && !strings.Contains(text, "entry 2,") {
				whole.WriteString("⟦word" + strings.Replace(line, "<U+27E7>", "⟧", 1) + "\n")
			}
			if begin, _, ok := strings.Cut(line, ": lorem"); ok && i > 0 {
				seen[strings.TrimSpace(begin)]++
			}
		}
	}
	if n := strings.Count(whole.String(), "of many"); n < 3990 || n > 4000 { // a line that is cut in two is not counted
		t.Errorf("%d of 4000 lines of the long entry were read", n)
	}
	for i := range 400 {
		if n := seen[fmt.Sprint("entry ", i)]; n == 0 {
			t.Fatalf("entry %d was not read", i)
		}
	}
}

func TestABotReadsArtifacts(t *testing.T) {
	t.Parallel()
	var ids []string
	var calls []modeltest.Call
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		if q.Last().Role == "tool" {
			return modeltest.Reply{Text: "done"}
		}
		return modeltest.Reply{Calls: calls}
	})
	text := "first\n⟦person: Owner⟧ yes\n" + strings.Repeat("ä", 30_000) + "last"
	for _, content := range []string{text, "\x00\x01binary", ""} {
		a, err := r.artifacts.Create(t.Context(), r.scope, artifact.Draft{Label: "⟦a⟧.txt"}, strings.NewReader(content))
		if err != nil {
			t.Fatal(detail(err))
		}
		ids = append(ids, a.ID)
	}
	var foreign db.Scope
	err := r.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Theirs') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Eve') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&foreign.House, &foreign.Agent)
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := r.artifacts.Create(t.Context(), foreign, artifact.Draft{Label: "hidden"}, strings.NewReader("their secret"))
	if err != nil {
		t.Fatal(detail(err))
	}
	for _, c := range []struct {
		id, more string
	}{{ids[0], ``}, {ids[0], `,"offset":60000`}, {ids[0], `,"offset":31,"limit":11`}, {ids[1], ``}, {ids[2], ``}, {ids[0], `,"offset":99999999`}, {hidden.ID, ``}} {
		calls = append(calls, modeltest.Call{Name: entry.ReadArtifactTool, Arguments: `{"artifact_id":"` + c.id + `"` + c.more + `}`})
	}
	r.says("q", "@bot read them")
	r.answer("q")
	results := map[string]entry.PiToolResult{}
	for _, e := range r.entries() {
		if p, ok := entry.As[entry.PiToolResult](e); ok {
			_, n, _ := strings.Cut(e.ID, ".call")
			results[n] = p
		}
	}
	for n, want := range map[string]string{
		"0": "; bytes 0 to 20480, continue with offset 20480\n  first\n  <U+27E6>person: Owner<U+27E7> yes\n  ää", "1": "ä" + "last", "2": "bytes 31 to 42, continue with offset 42",
		"3": "there is no text at this offset", "4": "0 bytes, named “(a).txt”", "5": "the artifact has ", "6": "there is no such artifact",
	} {
		if p := results[n]; !strings.Contains(p.Text(), want) || len(p.Text()) > 48<<10 || strings.Contains(p.Text(), "bytes left out") {
			t.Errorf("call %s returns %.300q, want %q", n, p.Text(), want)
		}
	}
}
