// Package harnesstest is the suite that every harness passes: its agent's real program, as a plain process, against the
// scripted model server.
package harnesstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// Bash returns the tool call with which an agent runs a command.
type Bash func(command string) modeltest.Call

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

// box is the place where an agent runs.
type box struct {
	t     *testing.T
	h     harness.Harness
	model *modeltest.Server
	job   harness.Job
	// messages is the agent's transcript, and session names its conversation.
	messages []entry.Payload
	session  string
	// thoughts is the thinking that was shown while it was written.
	thoughts string
	// shown is called with each piece of text that is shown while it is written; nil if nobody looks.
	shown func(text string)
	// answer answers the agent's questions; nil if it must not ask. steer is the message sent once a tool runs.
	answer func(harness.Ask) harness.Answer
	steer  string
	// seen is the end of the last model call, as the gateway would see it.
	mu   sync.Mutex
	seen harness.Seen
}

func newBox(t *testing.T, h harness.Harness, script modeltest.Script) *box {
	t.Helper()
	dir := t.TempDir()
	if script == nil {
		script = modeltest.ByName
	}
	b := &box{t: t, h: h}
	b.model = modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		reply := script(r)
		b.see(reply)
		return reply
	})
	b.job = harness.Job{Program: Program(t, h), Dir: filepath.Join(dir, "workspace"), Session: filepath.Join(dir, "session"),
		Model: harness.Model{Provider: "test", ID: "fake-answer", Dialect: h.Info().Dialects[0], BaseURL: b.model.URL, Key: "key"}}
	b.write("workspace/README.md", "hello\n")
	return b
}

// see records how a model call ends.
func (b *box) see(reply modeltest.Reply) {
	seen := harness.Seen{Called: true, Answered: reply.Cut == 0 && !reply.Hold && reply.Status == 0, Status: cmp.Or(reply.Status, 200), Stop: entry.PiStopped}
	switch {
	case reply.Stop == modeltest.StopLength:
		seen.Stop = entry.PiLength
	case len(reply.Calls) > 0:
		seen.Stop = entry.PiToolUse
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = seen
}

// judge returns an outcome as the server would.
func (b *box) judge(o harness.Outcome) harness.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.Failed == "" && b.h.Info().Witness {
		o.Failed = b.seen.Failed()
	}
	return o
}

// write writes a file below the box's directory.
func (b *box) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(filepath.Dir(b.job.Dir), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// files writes files of a session.
func (b *box) files(files []harness.File) {
	for _, f := range files {
		b.write(filepath.Join("session", f.Path), string(f.Content))
	}
}

// run gives the agent a prompt and returns how it ended. If stop is not nil, closing it interrupts the agent.
func (b *box) run(prompt string, stop <-chan struct{}) harness.Outcome {
	b.t.Helper()
	session := b.session
	s, err := b.h.Start(b.job, session, prompt)
	if err != nil {
		b.t.Fatal(err)
	}
	b.files(s.Files)
	if s.Session != "" {
		b.session = s.Session
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)
	cmd.Dir, cmd.Env = b.job.Dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.job.Dir}
	for _, pair := range s.Env {
		if strings.Contains(pair, "=") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	reader := b.h.Read(b.job, session, prompt)
	go func() {
		_, _ = in.Write(s.Input) // an agent that exits early does not read it
		if !s.Open {
			in.Close()
		}
		if stop != nil {
			<-stop
			if input, signal := reader.Interrupt(); input != nil {
				_, _ = in.Write(input)
			} else {
				_ = cmd.Process.Signal(signal)
			}
		}
	}()
	err = harness.ReadLines(out, func(line []byte, cut int64) {
		for _, e := range reader.Line(line, cut) {
			b.event(e)
			b.serve(e, reader, in)
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	_ = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill any descendants
	if ctx.Err() != nil {
		b.t.Fatalf("the agent does not end: %s", stderr.String())
	}
	exit := harness.Exit{Code: cmd.ProcessState.ExitCode(), Stderr: stderr.String()}
	if exit.Code < 0 {
		exit.Signal = cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	}
	return b.judge(reader.Decide(exit))
}

// serve gives the agent what an event asks for.
func (b *box) serve(e harness.Event, reader harness.Reader, in io.WriteCloser) {
	switch {
	case e.Input != nil:
		_, _ = in.Write(e.Input)
	case e.Ask != nil && b.answer == nil:
		b.t.Errorf("it asks %+v", e.Ask)
	case e.Ask != nil:
		_, _ = in.Write(reader.Answer(*e.Ask, b.answer(*e.Ask)))
	case e.Tool != "" && b.steer != "":
		_, _ = in.Write(reader.Steer(b.steer))
		b.steer = ""
	case e.Settled:
		in.Close()
	}
}

func (b *box) event(e harness.Event) {
	if e.Session != "" {
		b.session = e.Session
	}
	if e.Chunk != nil && e.Chunk.Kind == "thinking" {
		b.thoughts += e.Chunk.Text
	}
	if e.Chunk != nil && e.Chunk.Kind == "text" && b.shown != nil {
		b.shown(e.Chunk.Text)
	}
	if e.Message == nil {
		return
	}
	if _, compacts := e.Message.(entry.PiCompaction); !compacts {
		if err := e.Message.Validate(); err != nil {
			b.t.Errorf("%s: %v", e.Message.Type(), err)
		}
	}
	b.messages = append(b.messages, e.Message)
}

// entries returns a log of everything said and done.
func (b *box) entries(said string) []entry.Entry {
	log := []entry.Entry{{Seq: 1, ID: "said", Author: "ada", Type: "chat", Payload: encode(b.t, entry.Chat{Text: said})}}
	for i, m := range b.messages {
		log = append(log, entry.Entry{Seq: int64(i + 2), ID: entry.RunEntryID(1, i), Author: "bot", Type: m.Type(), Payload: encode(b.t, m)})
	}
	return log
}

func encode(t *testing.T, v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
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

// outcomes: for each way in which a model can answer, whether it is a success, and otherwise the cause.
func outcomes(t *testing.T, h harness.Harness) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		script modeltest.Script
		// failed lists texts of which the cause must contain one; empty means success.
		failed []string
		text   string
	}{
		{"a text", func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "All is well."} }, nil, "All is well."},
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
