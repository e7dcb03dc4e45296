// Package harnesstest is the suite that every harness passes: its agent's real program, as a plain process, against the
// scripted model server.
package harnesstest

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// Run runs the suite.
func Run(t *testing.T, h harness.Harness, bash Bash) {
	t.Run("is installed once, or says what is missing", func(t *testing.T) { installs(t, h) })
	t.Run("says how its answers ended", func(t *testing.T) { outcomes(t, h) })
	t.Run("speaks each of its dialects", func(t *testing.T) { dialects(t, h, bash) })
	t.Run("takes any prompt", func(t *testing.T) { prompts(t, h) })
	t.Run("continues from its own files and from a transcript", func(t *testing.T) { continues(t, h, bash) })
	t.Run("continues the conversation of another agent", func(t *testing.T) { takesOver(t, h) })
	t.Run("runs nothing of the repository", func(t *testing.T) { hostile(t, h) })
	t.Run("shows an answer while it is written", func(t *testing.T) { shows(t, h) })
	t.Run("stops when it is interrupted", func(t *testing.T) { interrupt(t, h) })
	t.Run("is interrupted in the middle of a command", func(t *testing.T) { interruptsCommand(t, h, bash) })
	t.Run("asks people, if it can, and only then", func(t *testing.T) { asks(t, h, bash) })
	t.Run("takes what is said while it works, if it can", func(t *testing.T) { steers(t, h, bash) })
}

// installs: the script names what is missing and how to get it, leaves nothing behind, and does nothing a second time.
func installs(t *testing.T, h harness.Harness) {
	t.Parallel()
	dir, bin := filepath.Join(t.TempDir(), "agents", "one"), t.TempDir()
	script := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", h.Install().Script)
		cmd.Env = []string{"PATH=" + bin, "DIR=" + dir}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if said, err := script(); err == nil || !strings.Contains(said, h.Info().Title+" cannot be installed: npm is missing. ") {
		t.Errorf("without npm it says %q, %v", said, err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		t.Error("it left something behind")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ".installed"), []byte(h.Info().Version+"\n"), 0o600), os.Symlink(cat, filepath.Join(bin, "cat"))); err != nil {
		t.Fatal(err)
	}
	if said, err := script(); err != nil || said != "" {
		t.Errorf("the second time it says %q, %v", said, err)
	}
}

// outcomes: for each way in which a model can answer, whether it is a success, and otherwise the cause. That a plain answer is
// one is in shows.
func outcomes(t *testing.T, h harness.Harness) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		script modeltest.Script
		// failed lists texts of which the cause must contain one; empty means success.
		failed []string
		text   string
	}{
		{"nothing", func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{} }, []string{"no output"}, ""},
		{"a refused request", func(r *modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Status: 400, Error: modeltest.Error{Type: "invalid_request_error", Message: "the roof is on fire"}}
		}, []string{"roof is on fire"}, ""},
		{"no money", func(r *modeltest.Request) modeltest.Reply {
			r.Model = "fake-nomoney"
			reply := modeltest.ByName(r)
			reply.Status = http.StatusPaymentRequired // the gateway's answer, whatever the provider did
			return reply
		}, []string{"credit", "quota", "billing"}, ""},
		{"a rate limit that passes", func(r *modeltest.Request) modeltest.Reply {
			if r.Seen == 0 {
				reply := modeltest.Refused(r.Dialect, 429)
				reply.Header = map[string]string{"Retry-After": "1"}
				return reply
			}
			return modeltest.Reply{Text: "All is well."}
		}, nil, "All is well."},
		{"a server that is away for some seconds", away(5 * time.Second), nil, "All is well."},
		{"an answer that is cut by the limit of tokens", func(*modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Text: "It begins", Stop: modeltest.StopLength}
		}, []string{"limit", "max", "length", "truncated", "token"}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, h, c.script)
			o := b.run("go on", nil)
			found := len(c.failed) == 0 && o.Failed == ""
			for _, cause := range c.failed {
				found = found || strings.Contains(strings.ToLower(o.Failed), cause)
			}
			if !found || c.text != "" && o.Text != c.text {
				t.Errorf("the outcome is %+v", o)
			}
		})
	}
}

// away returns the script of a gateway that cannot serve for a while after the first request, as when its server is replaced.
func away(long time.Duration) modeltest.Script {
	back := sync.OnceValue(func() time.Time { return time.Now().Add(long) })
	return func(*modeltest.Request) modeltest.Reply {
		if time.Now().Before(back()) {
			return modeltest.Reply{Status: http.StatusBadGateway, Error: modeltest.Error{Type: "api_error", Message: "the model gateway cannot be reached"}}
		}
		return modeltest.Reply{Text: "All is well."}
	}
}

// dialects: in each dialect that it claims to speak, tools run and answers arrive. The thinking of the model is a block of the
// answer that it belongs to, before the text and the calls, and is shown while it is written.
func dialects(t *testing.T, h harness.Harness, bash Bash) {
	t.Parallel()
	for _, d := range h.Info().Dialects {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			b := newBox(t, h, func(r *modeltest.Request) modeltest.Reply {
				if r.Last().Role == "tool" {
					return modeltest.Reply{Thinking: "That was easy.", Text: "It says: " + r.Last().Text}
				}
				return modeltest.Reply{Thinking: "I have to look.", Calls: []modeltest.Call{bash("echo ran")}}
			})
			b.job.Model.Dialect, b.job.Model.Thinks = d, true
			o := b.run("go on", nil)
			if o.Failed != "" || !strings.Contains(o.Text, "ran") || b.model.Requests()[0].Dialect != modeltest.Dialect(d) {
				t.Fatalf("the outcome is %+v", o)
			}
			var thoughts []string
			for _, m := range b.messages {
				if a, ok := m.(entry.PiAssistant); ok && a.Content[0].Type == entry.PiThinkingBlock {
					thoughts = append(thoughts, strings.Fields(a.Content[0].Thinking)...)
				}
			}
			if got, live := strings.Join(thoughts, " "), strings.Join(strings.Fields(b.thoughts), " "); got != "I have to look. That was easy." || !strings.HasPrefix(live, "I have to look.") {
				t.Errorf("it thinks %q, and %q live, in %+v", got, live, b.messages)
			}
		})
	}
}

// prompts: no prompt is taken for an option or a file, or is too long.
func prompts(t *testing.T, h harness.Harness) {
	t.Parallel()
	for what, prompt := range map[string]string{"a long option": "--help " + strings.Repeat("lorem ipsum ", entry.MaxText/12-2) + "END", "a file": "@README.md", "a command": "/help me"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, h, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "fine"} })
			o := b.run(prompt, nil)
			if requests := b.model.Requests(); o.Failed != "" || len(requests) == 0 || !strings.Contains(string(requests[0].Body), string(bytes.Trim(encode(t, prompt[max(0, len(prompt)-12):]), `"`))) {
				t.Errorf("the outcome is %+v after %d requests", o, len(requests))
			}
		})
	}
}

// continues: the next prompt follows the conversation, none of which runs again, in the same files and in new ones.
func continues(t *testing.T, h harness.Harness, bash Bash) {
	t.Parallel()
	b := newBox(t, h, func(r *modeltest.Request) modeltest.Reply {
		switch {
		case strings.Contains(r.Asked(), "SECOND"):
			return modeltest.Reply{Text: "second done"}
		case r.Last().Role == "tool":
			return modeltest.Reply{Text: "first done"}
		}
		return modeltest.Reply{Text: "I look.", Calls: []modeltest.Call{bash("echo x >> count; echo it says 4711")}}
	})
	if o := b.run("FIRST", nil); o.Failed != "" || o.Text != "first done" {
		t.Fatalf("the outcome is %+v", o)
	}
	log := b.entries("FIRST")
	check := func(where string) {
		t.Helper()
		if o := b.run("SECOND", nil); o.Failed != "" || o.Text != "second done" {
			t.Errorf("%s, the outcome is %+v", where, o)
		}
		b.knows(where, "FIRST", "I look.", "4711", "first done", "SECOND")
		if text, _ := os.ReadFile(filepath.Join(b.job.Dir, "count")); string(text) != "x\n" {
			t.Errorf("%s, the command ran again: %q", where, text)
		}
	}
	check("in the same box")
	for _, cut := range []bool{false, true} {
		b.job.Session = filepath.Join(filepath.Dir(b.job.Dir), "session")
		if err := os.RemoveAll(b.job.Session); err != nil {
			t.Fatal(err)
		}
		messages := harness.Transcript(log, "bot", 1)
		if cut {
			messages = harness.Transcript(log[:2], "bot", 1) // the log ends with the call
		}
		files, session, err := h.Rebuild(b.job, messages)
		if err != nil {
			t.Fatal(err)
		}
		b.files(files)
		if b.session = session; !cut {
			check("in a fresh box")
			continue
		}
		if o := b.run("SECOND", nil); o.Failed != "" {
			t.Errorf("after a cut, the outcome is %+v", o)
		}
		requests := b.model.Requests()
		if body := string(requests[len(requests)-1].Body); !strings.Contains(body, "interrupted: the run ended") {
			t.Errorf("the model is not told of the cut: %s", body)
		}
	}
}

// asks: the tools that its settings name run only with a person's approval, and the person's words reach the model. An agent
// that does not ask about commands that only read says so.
func asks(t *testing.T, h harness.Harness, bash Bash) {
	t.Parallel()
	asked := 0
	b := newBox(t, h, func(r *modeltest.Request) modeltest.Reply {
		switch {
		case r.Last().Role == "tool" || strings.Contains(r.Last().Text, "too early"):
			return modeltest.Reply{Text: "It said: " + r.Last().Text}
		case strings.Contains(r.Asked(), "THIRD"):
			return modeltest.Reply{Calls: []modeltest.Call{bash("cat README.md")}}
		case strings.Contains(r.Asked(), "SECOND"):
			return modeltest.Reply{Calls: []modeltest.Call{bash("touch second; echo ran")}}
		}
		return modeltest.Reply{Calls: []modeltest.Call{bash("touch first; echo ran")}}
	})
	if !h.Info().Asks {
		if o := b.run("FIRST", nil); o.Failed != "" || !strings.Contains(o.Text, "ran") {
			t.Errorf("the outcome is %+v", o)
		}
		return
	}
	b.job.Ask = []string{entry.RunCommandTool}
	b.answer = func(a harness.Ask) harness.Answer {
		asked++
		if arguments := string(a.Arguments); !strings.Contains(arguments, "touch") && !strings.Contains(arguments, "README") || a.CallID == "" || a.Question {
			t.Errorf("it asks %+v", a)
		}
		return harness.Answer{Yes: !strings.Contains(string(a.Arguments), "first"), Words: "it is too early"}
	}
	if o := b.run("FIRST", nil); o.Failed != "" || !strings.Contains(o.Text, "too early") {
		t.Errorf("after a no, the outcome is %+v", o)
	}
	if o := b.run("SECOND", nil); o.Failed != "" || !strings.Contains(o.Text, "ran") || asked != 2 {
		t.Errorf("after a yes, the outcome is %+v, and it asked %d times", o, asked)
	}
	for name, there := range map[string]bool{"first": false, "second": true} {
		if _, err := os.Stat(filepath.Join(b.job.Dir, name)); (err == nil) != there {
			t.Errorf("the file %s: %v", name, err)
		}
	}
	b.session, asked = "", 0
	freely := strings.Contains(h.Info().Limits, "it does not ask about commands that only read")
	if o := b.run("THIRD", nil); o.Failed != "" || !strings.Contains(o.Text, "hello") || (asked == 0) != freely {
		t.Errorf("after a command that only reads, the outcome is %+v, and it asked %d times", o, asked)
	}
}
