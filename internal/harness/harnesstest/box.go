package harnesstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
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
