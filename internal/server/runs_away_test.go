package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// together runs a subtest for each agent, at the same time.
func together(t *testing.T, name string, one func(t *testing.T, agent string)) {
	t.Run(name, func(t *testing.T) {
		for agent := range shells {
			t.Run(agent, func(t *testing.T) {
				t.Parallel()
				one(t, agent)
			})
		}
	})
}

// agentKilled kills the agent itself. The run fails with this cause, what the agent started ends, and the tree is saved.
func (a *agents) agentKilled(t *testing.T, agent string) {
	w := a.waits(t, "agent", agent)
	dies(t, w.run.agent())
	run := w.ended(t, w.thread, w.epoch, "running", "says: I wait for agent.", "result: is not known.]", "reports: failed", "fails", "failed")
	if !strings.Contains(run.Error, "signal 9") || run.FailurePhase != arbev1.FailurePhase_FAILURE_PHASE_EXECUTION {
		t.Errorf("the cause is %q in phase %q", run.Error, run.FailurePhase)
	}
	w.nothingRuns()
	w.goesOn()
	w.kept()
}

// nothingRuns waits until the run has no process.
func (w *waiting) nothingRuns() {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(w.run.processes()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("of the run are left: %v", w.run.processes())
		}
	}
}

// serverKilled stops the server while all agents work, and kills it later. Their commands end while it is away. What the
// runners cannot post in a minute waits in their sandboxes, and comes when there is a server again; each run goes on to its end.
func (a *agents) serverKilled(t, whole *testing.T) {
	var all []*waiting
	for agent := range shells {
		all = append(all, a.waits(t, "server", agent))
	}
	if err := a.server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began, away := time.Now(), true
	defer func() {
		if away { // the test has failed; the next ones need a server
			a.restart(whole)
		}
	}()
	for _, w := range all {
		w.goes()
	}
	for _, w := range all {
		w.run.spooled(w.epoch, "it went on")
	}
	if !testing.Short() {
		time.Sleep(time.Until(began.Add(time.Minute))) // the fault is an absence of a minute
	}
	a.restart(whole)
	away = false
	t.Logf("the server was away for %s", time.Since(began))
	for _, w := range all {
		run := w.ended(t, w.thread, w.epoch, "running", "says: I wait for server.", "result: it went on", "says: The file says so.", "reports: completed", "completed")
		t.Logf("%s ended after %s", w.agent, time.Since(began))
		if run.Result != "The file says so." || !strings.Contains(a.patch(t, run), w.file()) {
			t.Errorf("the run of %s has the result %q", w.agent, run.Result)
		}
	}
}

// spooled waits until the runner keeps an entry with some words, which it cannot post.
func (r *counting) spooled(epoch int64, words string) {
	r.t.Helper()
	dir := filepath.Dir(commandLine(r.runner)[1])
	name := fmt.Sprintf("/proc/%d/root%s/spool-%d", r.runner, dir, epoch)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), words) {
			return
		} else if time.Now().After(deadline) {
			r.t.Fatalf("the runner of %s does not keep %q: %v\n%s", r.thread, words, err, text)
		}
	}
}

// sandboxKilled kills the first process of an agent's sandbox, with which all others end. The run is lost. It continues in the
// same sandbox, which begins again with its files.
func (a *agents) sandboxKilled(t *testing.T, agent string) {
	w := a.waits(t, "sandbox", agent)
	dies(t, w.run.first())
	run := w.ended(t, w.thread, w.epoch, "running", "says: I wait for sandbox.", "lost: its sandbox ended while it ran", "failed")
	if !strings.Contains(run.Error, "its sandbox ended while it ran") {
		t.Errorf("the cause is %q", run.Error)
	}
	w.goesOn()
	w.kept()
}

// writers are the tools with which agents write a file, and the name of the argument with its path. Codex writes with its shell.
var writers = map[string][2]string{"pi": {"write", "path"}, "claude": {"Write", "file_path"}}

// longFile is the text of a file that is too long for a call's arguments in a log.
var longFile = strings.Repeat("a line of a long file\n", 20_000)

// writesLong is the model's answer to "- write it, as AGENT": a call with long arguments.
func writesLong(asked string) (modeltest.Reply, bool) {
	_, agent, ok := strings.Cut(asked, "- write it, as ")
	tool, known := writers[strings.TrimSpace(agent)]
	arguments, _ := json.Marshal(map[string]string{tool[1]: "/tmp/long.txt", "content": longFile})
	return modeltest.Reply{Text: "I write much.", Calls: []modeltest.Call{{Name: tool[0], Arguments: string(arguments)}}}, ok && known
}

// longArguments has an agent call a tool with long arguments. The log has a part of them, and an artifact has all.
func (a *agents) longArguments(t *testing.T, agent string) {
	if _, writes := writers[agent]; !writes {
		return
	}
	c, thread := client(t, a.cfg), a.threads[agent]
	epoch := a.last(t, thread).Epoch + 1
	if _, err := c.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: "- write it, as " + agent}); err != nil {
		t.Fatal(err)
	}
	if status := ends(t, c, thread, epoch); status != "completed" {
		t.Fatalf("it is %s: %s", status, a.last(t, thread).Error)
	}
	var call entry.PiBlock
	await(t, c, thread, func(e *arbev1.TailResponse) bool {
		p, _ := entry.As[entry.PiAssistant](entry.Entry{Type: e.GetEntry().GetType(), Payload: json.RawMessage(e.GetEntry().GetPayload())})
		if entry.RunOf(e.GetEntry().GetId()) == entry.RunID(epoch) && len(p.Calls()) == 1 {
			call = p.Calls()[0]
		}
		return call.ID != ""
	})
	if len(call.Arguments) > 256<<10 || call.WholeBytes < int64(len(longFile)) || call.ArtifactID == "" {
		t.Fatalf("the log has %d bytes, of %d in artifact %q", len(call.Arguments), call.WholeBytes, call.ArtifactID)
	}
	r, err := c.OpenArtifact(t.Context(), call.ArtifactID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var whole struct{ Content string }
	if err := json.NewDecoder(r).Decode(&whole); err != nil || whole.Content != longFile {
		t.Errorf("the artifact has %d bytes of the file: %v", len(whole.Content), err)
	}
}

// hasty creates a bot with the runtime of a coding agent, whose runs may take a minute.
func (a *agents) hasty(t *testing.T, b *arbev1.Bot) {
	t.Helper()
	if _, ok := shells[b.Handle]; !ok {
		return
	}
	if _, err := client(t, a.cfg).Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: a.parent.HouseId, Handle: "hasty-" + b.Handle, Runtime: b.Runtime,
		Model: map[string]string{"codex": "openai/plain"}[b.Handle], Limits: &arbev1.BotLimits{RunMinutes: 1}, SkipModelCheck: true}); err != nil {
		t.Fatal(err)
	}
}

// neverAnswers reports whether a request is of a run that hangs.
func neverAnswers(r *modeltest.Request) bool {
	return len(r.Tools) > 0 && strings.Contains(r.Asked(), "- wait for ever")
}

// hang begins a run whose model never answers. Other runs work in the meantime.
func (a *agents) hang(t *testing.T, agent string) {
	t.Helper()
	made, err := client(t, a.cfg).Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: a.parent.HouseId, ParentThreadId: a.parent.Id,
		Task: "- wait for ever, as " + agent, Agent: "@hasty-" + agent, Sandbox: a.box})
	if err != nil {
		t.Fatal(err)
	}
	a.hanging[agent] = made.Thread.Id
}

// hung waits until the hanging agents have asked their models. It then suspends one agent, so that it reacts to no signal.
func (a *agents) hung(t *testing.T) {
	t.Helper()
	for agent := range shells {
		asked := func(r *modeltest.Request) bool { return neverAnswers(r) && strings.Contains(r.Asked(), ", as "+agent) }
		for deadline := time.Now().Add(3 * time.Minute); !slices.ContainsFunc(a.models.Requests(), asked); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not ask its model", agent)
			}
		}
	}
	r := &counting{t: t, thread: a.hanging["claude"]}
	r.find()
	if err := syscall.Kill(r.agent(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// hangs awaits that run. It ends by its limit, with this cause, and leaves nothing.
func (a *agents) hangs(t *testing.T, agent string) {
	c, thread := client(t, a.cfg), a.hanging[agent]
	awaitBegun(t, c, thread, 1)
	for began := time.Now(); a.last(t, thread).Status == arbev1.RunStatus_RUN_STATUS_RUNNING && time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
	}
	run := a.ended(t, thread, 1, "running", "reports: failed", "fails", "failed")
	if !strings.Contains(run.Error, "the agent was stopped after 1m0s, which is as long as a run may take") || run.FailurePhase != arbev1.FailurePhase_FAILURE_PHASE_EXECUTION {
		t.Errorf("the cause is %q in phase %q", run.Error, run.FailurePhase)
	}
	(&waiting{t: t, run: &counting{t: t, thread: thread}}).nothingRuns()
	a.ranNothing(t, thread)
}

// hostileRepository returns the shell commands that write files whose configuration would have an agent run a program, which
// leaves a mark.
func hostileRepository() string {
	const evil = "/workspace/evil.sh"
	files := harnesstest.Repository(evil, "/workspace")
	files["evil.sh"] = "#!/bin/sh\necho $0 $* >> /tmp/ran\n"
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "mkdir -p %s; cat > %s <<'THE-END'\n%s\nTHE-END\n", filepath.Dir(name), name, files[name])
	}
	return b.String() + "chmod +x evil.sh; "
}

// ranNothing checks that no run in a thread's sandbox ran the program of the repository's configuration.
func (a *agents) ranNothing(t *testing.T, thread string) {
	t.Helper()
	if got := output(t, a.cfg, thread, "test -x evil.sh && echo It could be run.; cat /tmp/ran 2>/dev/null; true"); got != "It could be run.\n" {
		t.Errorf("what the repository ran: %s", got)
	}
}

// holding returns the command in the middle of which an agent is stopped.
func holding(agent string) string { return fmt.Sprint("sleep 98765", len(agent)) }
