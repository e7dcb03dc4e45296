package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/server"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// agents are the coding agents of a house, on a server that the tests kill.
type agents struct {
	cfg    server.Config
	server *exec.Cmd
	models *modeltest.Server
	parent *arbev1.Thread
	// box is a sandbox that has the agents, and threads are those that the agents drive.
	box     string
	threads map[string]string
	// lasting are the threads in which the model's rate limit lasts, and hanging those in which it never answers.
	lasting, hanging map[string]string
}

// restart kills the server and starts another one.
func (a *agents) restart(t *testing.T) {
	t.Helper()
	a.server.Process.Kill()
	a.server.Wait()
	a.server = startProcess(t, a.cfg)
}

// waits is the model's answer to "- await WHAT, as AGENT": a command that writes a file, and ends when another file exists.
func waits(asked string) (modeltest.Reply, bool) {
	_, rest, ok := strings.Cut(asked, "- await ")
	what, agent, named := strings.Cut(rest, ", as ")
	shell, known := shells[strings.TrimSpace(agent)]
	if !ok || !named || !known {
		return modeltest.Reply{}, false
	}
	line := fmt.Sprintf("echo begun >> %[1]s-%[2]s.txt; until test -e go-%[1]s-%[2]s; do sleep 0.05; done; echo it went on", what, agent)
	arguments, _ := json.Marshal(map[string]string{shell[1]: line})
	return modeltest.Reply{Text: "I wait for " + what + ".", Calls: []modeltest.Call{{Name: shell[0], Arguments: string(arguments)}}}, true
}

// waiting is a run of a real agent in the middle of a command.
type waiting struct {
	*agents
	run         *counting // its processes
	t           *testing.T
	thread      string
	what, agent string
	epoch       int64
}

// waits begins a run in the thread of an agent, and returns it when the agent's command runs.
func (a *agents) waits(t *testing.T, what, agent string) *waiting {
	t.Helper()
	w := &waiting{agents: a, t: t, thread: a.threads[agent], what: what, agent: agent}
	c := client(t, a.cfg)
	if _, err := c.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: w.thread, Text: "- await " + what + ", as " + agent}); err != nil {
		t.Fatal(err)
	}
	await(t, c, w.thread, func(e *arbev1.TailResponse) bool { // codex reports a command after it has begun
		return e.GetEntry().GetType() == (entry.PiAssistant{}).Type() && strings.Contains(e.GetEntry().Payload, "I wait for "+what+".")
	})
	if got := output(t, a.cfg, w.thread, "until test -e "+w.file()+"; do sleep 0.05; done; cat "+w.file()); got != "begun\n" {
		t.Fatalf("the command of %s begins with %q", agent, got)
	}
	w.epoch = a.last(t, w.thread).Epoch
	w.run = &counting{t: t, thread: w.thread}
	w.run.find()
	return w
}

// file is the untracked file that the agent's command wrote.
func (w *waiting) file() string { return w.what + "-" + w.agent + ".txt" }

// goes lets the agent's command end. It needs no server.
func (w *waiting) goes() {
	w.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/workspace/go-%s-%s", w.run.runner, w.what, w.agent), nil, 0o666); err != nil {
		w.t.Fatal(err)
	}
}

// last returns the last run of a thread.
func (a *agents) last(t *testing.T, thread string) *arbev1.Run {
	t.Helper()
	runs, err := client(t, a.cfg).Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: thread, PageSize: 1})
	if err != nil || len(runs.Runs) != 1 {
		t.Fatalf("the last run is %v: %v", runs.GetRuns(), err)
	}
	return runs.Runs[0]
}

// ended waits for the end of a run, and checks that nothing is lost and nothing came twice: the log tells exactly this story
// of the run, in this order; the row agrees with it; and the parent thread was told once. It returns the run.
func (a *agents) ended(t *testing.T, thread string, epoch int64, story ...string) *arbev1.Run {
	t.Helper()
	c := client(t, a.cfg)
	status := ends(t, c, thread, epoch)
	list, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if got := tells(list.Entries, epoch); !slices.Equal(got, story) {
		t.Errorf("the log tells of run %d\n%q, want\n%q", epoch, got, story)
	}
	got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil || arbev1.Word(got.Thread.Status) != status {
		t.Errorf("the row says %s and the log %s (%v)", got.GetThread().GetStatus(), status, err)
	}
	if told := toldOf(t, c, a.parent.Id, thread)[epoch]; told != 1 {
		t.Errorf("the parent thread was told %d times of run %d", told, epoch)
	}
	run := a.last(t, thread)
	if run.Epoch != epoch || arbev1.Word(run.Status) != status {
		t.Errorf("the last run is %v, and the log says %s", run, status)
	}
	return run
}

// tells returns what a log tells of a run.
func tells(entries []*arbev1.Entry, epoch int64) (story []string) {
	for _, e := range entries {
		mine := entry.RunOf(e.Id) == entry.RunID(epoch)
		switch p, _ := entry.Decode(entry.Entry{Type: e.Type, Payload: json.RawMessage(e.Payload)}); p := p.(type) {
		case entry.PiAssistant:
			if mine && p.Text() != "" { // agents record failed answers in different ways
				story = append(story, "says: "+p.Text())
			}
		case entry.PiToolResult:
			if lines := strings.Fields(p.Text()); mine {
				story = append(story, "result: "+strings.Join(lines[max(0, len(lines)-3):], " ")) // codex says more before
			}
		case entry.RunFinished:
			if p.Epoch == epoch {
				story = append(story, "reports: "+p.Outcome)
			}
		case entry.PiFailed:
			if p.Epoch == epoch {
				story = append(story, "fails")
			}
		case entry.SessionOrphaned:
			if p.Epoch == epoch {
				story = append(story, "lost: "+p.Reason)
			}
		case entry.StatusChanged:
			if p.Epoch == epoch {
				story = append(story, p.To)
			}
		}
	}
	return story
}

// toldOf returns how often a thread was told of the end of each run of a child.
func toldOf(t *testing.T, c *arbe.Client, parent, child string) map[int64]int {
	t.Helper()
	told := map[int64]int{}
	list, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: parent, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Entries {
		p, _ := entry.Decode(entry.Entry{Type: e.Type, Payload: json.RawMessage(e.Payload)})
		if f, ok := p.(entry.ChildFinished); ok && f.ChildThreadID == child {
			told[f.Epoch]++
		}
	}
	return told
}

// goesOn continues the last run, which failed. The model gets the earlier conversation, and no command runs again.
func (w *waiting) goesOn() {
	w.t.Helper()
	before := len(w.models.Requests())
	if _, err := client(w.t, w.cfg).Runs.ContinueRun(w.t.Context(), &arbev1.ContinueRunRequest{ThreadId: w.thread}); err != nil {
		w.t.Fatal(err)
	}
	awaitBegun(w.t, client(w.t, w.cfg), w.thread, w.epoch+1)
	w.ended(w.t, w.thread, w.epoch+1, "running", "says: I went on.", "reports: completed", "completed")
	asked := 0
	for _, r := range w.models.Requests()[before:] {
		body := string(r.Body)
		if !strings.Contains(body, "- as "+w.agent) || !strings.Contains(body, "Continue.") {
			continue
		}
		asked++
		for _, said := range []string{"- as " + w.agent, "- await " + w.what, "I wait for " + w.what + ".", "Continue."} {
			_, rest, ok := strings.Cut(body, said)
			if body = rest; !ok {
				w.t.Fatalf("the model is not told %q after the rest: %s", said, r.Body)
			}
		}
	}
	if asked == 0 {
		w.t.Error("the model is not asked to continue")
	}
}

// awaitBegun waits until a run has begun, for as long as installing an agent may take.
func awaitBegun(t *testing.T, c *arbe.Client, thread string, epoch int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for e, err := range c.Tail(ctx, thread, 0) {
		if err != nil {
			t.Fatalf("following: %v", err)
		}
		p, _ := entry.Decode(entry.Entry{Type: e.GetEntry().GetType(), Payload: json.RawMessage(e.GetEntry().GetPayload())})
		if s, ok := p.(entry.StatusChanged); ok && s.Epoch == epoch && s.To == "running" {
			return
		}
	}
	t.Fatalf("run %d did not begin", epoch)
}

// runner returns the path in the sandbox of the program that runs a thread's agent.
func (a *agents) runner(t *testing.T, thread string) string {
	t.Helper()
	r := &counting{t: t, thread: thread}
	r.find()
	return commandLine(r.runner)[0]
}

// runnerKilled kills the runner. The run fails at once, its agent and the agent's command end, and the tree is saved.
func (a *agents) runnerKilled(t *testing.T, agent string) {
	w := a.waits(t, "runner", agent)
	began := time.Now()
	dies(t, w.run.runner)
	run := w.ended(t, w.thread, w.epoch, "running", "says: I wait for runner.", "reports: failed", "fails", "failed")
	if !strings.Contains(run.Error, "the runner was killed, and the agent with it") || run.FailurePhase != arbev1.FailurePhase_FAILURE_PHASE_OBSERVATION {
		t.Errorf("the cause is %q in phase %q", run.Error, run.FailurePhase)
	}
	if !strings.Contains(a.patch(t, run), w.file()) {
		t.Error("the untracked file is not in the saved changes")
	}
	if took := time.Since(began); took > time.Minute { // a runner's silence would tell it later
		t.Errorf("it took %s", took)
	}
	w.nothingRuns()
	w.goesOn()
	w.kept()
}

// patch returns the changes of a run.
func (a *agents) patch(t *testing.T, run *arbev1.Run) string {
	t.Helper()
	r, err := client(t, a.cfg).OpenArtifact(t.Context(), run.PatchArtifactId, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// postgresKilled kills Postgres while all agents work. Their commands end while it is away, so that the agents ask their models
// then. Each run goes on to its end.
func (a *agents) postgresKilled(t *testing.T) {
	var all []*waiting
	for agent := range shells {
		all = append(all, a.waits(t, "postgres", agent))
	}
	began, killed := time.Now(), a.postmaster()
	dies(t, killed)
	for _, w := range all {
		w.goes()
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := client(t, a.cfg).Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: a.parent.Id})
		if now := a.postmaster(); err == nil && now != 0 && now != killed {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the database does not come back: %v", err)
		}
	}
	t.Logf("the server answers again after %s", time.Since(began))
	for _, w := range all {
		run := w.ended(t, w.thread, w.epoch, "running", "says: I wait for postgres.", "result: it went on", "says: The file says so.", "reports: completed", "completed")
		t.Logf("%s ended after %s", w.agent, time.Since(began))
		if run.Result != "The file says so." || !strings.Contains(a.patch(t, run), w.file()) {
			t.Errorf("the run of %s has the result %q", w.agent, run.Result)
		}
	}
}

// postmaster returns the process of the server's Postgres; 0 if there is none.
func (a *agents) postmaster() int {
	text, _ := os.ReadFile(filepath.Join(a.cfg.DataDir, "postgres", "data", "postmaster.pid"))
	line, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// kept checks that the file that the agent wrote before the death is in the sandbox and in the changes of the continued run.
func (w *waiting) kept() {
	w.t.Helper()
	if got := output(w.t, w.cfg, w.thread, "cat "+w.file()); got != "begun\n" {
		w.t.Errorf("the file that the agent wrote has %q", got)
	}
	if last := w.last(w.t, w.thread); last.PatchArtifactId == "" || !strings.Contains(w.patch(w.t, last), w.file()) {
		w.t.Errorf("the changes of the continued run do not have %s", w.file())
	}
}

// isLimited reports whether a request meets the rate limit that lasts.
func isLimited(r *modeltest.Request) bool { return strings.Contains(r.Asked(), "- meet a rate limit") }

// limited begins a run whose model answers each request with 429. Agents ask again for up to a minute, in which other runs
// work.
func (a *agents) limited(t *testing.T, agent string) {
	t.Helper()
	made, err := client(t, a.cfg).Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: a.parent.HouseId, ParentThreadId: a.parent.Id,
		Task: "- meet a rate limit", Agent: "@" + agent, Sandbox: a.box})
	if err != nil {
		t.Fatal(err)
	}
	a.lasting[agent] = made.Thread.Id
}

// limitLasts awaits these runs. They end by themselves, and their threads say why, and what to do next.
func (a *agents) limitLasts(t *testing.T) {
	c := client(t, a.cfg)
	for agent, thread := range a.lasting {
		awaitBegun(t, c, thread, 1)
		for began := time.Now(); a.last(t, thread).Status == arbev1.RunStatus_RUN_STATUS_RUNNING && time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
		}
		run := a.ended(t, thread, 1, "running", "reports: failed", "fails", "failed")
		t.Logf("%s: %s", agent, run.Error)
		if why := strings.ToLower(run.Error); !strings.Contains(why, "429") || !strings.Contains(why, "rate limit") && !strings.Contains(why, "too many requests") {
			t.Errorf("%s fails with %q", agent, run.Error)
		}
		list, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Entries {
			if f, ok := entry.As[entry.PiFailed](entry.Entry{Type: e.Type, Payload: json.RawMessage(e.Payload)}); ok && (f.Next == "" || f.Phase != entry.PhaseExecution) {
				t.Errorf("%s fails with %+v", agent, f)
			}
		}
	}
}
