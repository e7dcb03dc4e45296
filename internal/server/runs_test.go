package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/claude"
	"github.com/arbe-dev/arbe/internal/harness/codex"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// shells are the tools with which agents run a line of shell, and the name of the tool's argument.
var shells = map[string][2]string{"pi": {"bash", "command"}, "codex": {"exec_command", "cmd"}, "claude": {"Bash", "command"}}

// Real agents in real sandboxes ask a scripted model through the gateway. Their repository has a configuration that would have
// them run a program. Pi is installed from npm's own registry, and the others from one in the sandbox; see [installable]. In the
// middle of pi's run, the server is killed and replaced by a newer one. Then everything else dies, stops or fails.
func TestCodingAgentsFromTheirTasksToTheirResults(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs the agents")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		switch {
		case isLimited(r):
			return modeltest.Limited(1)(r)
		case neverAnswers(r):
			return modeltest.Silent(r)
		case strings.Contains(r.Asked(), "Continue."):
			return modeltest.Reply{Text: "I went on."}
		}
		for _, m := range slices.Backward(r.Messages) { // an agent may ask on after an answer that was cut
			if m.Role != "user" || !strings.Contains(m.Text, "- a") {
				continue
			}
			for _, f := range failures {
				if strings.Contains(m.Text, "- "+f.what) {
					return f.reply(r)
				}
			}
			break
		}
		for _, script := range []func(string) (modeltest.Reply, bool){waits, writesLong} {
			if reply, ok := script(r.Asked()); ok && r.Last().Role != "tool" {
				return reply
			}
		}
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "The file says so."}
		}
		for agent, shell := range shells {
			if strings.Contains(r.Asked(), "- again as "+agent) {
				arguments, _ := json.Marshal(map[string]string{shell[1]: "echo held >> held-" + agent + ".txt; " + holding(agent)})
				return modeltest.Reply{Text: "I hold.", Calls: []modeltest.Call{{Name: shell[0], Arguments: string(arguments)}}}
			}
			if strings.Contains(r.Asked(), "- as "+agent) {
				arguments, _ := json.Marshal(map[string]string{shell[1]: "echo begun; until test -e go-" + agent + "; do sleep 0.05; done; echo fixed > " + agent + ".txt; cat " + agent + ".txt"})
				return modeltest.Reply{Text: "I write it.", Calls: []modeltest.Call{{Name: shell[0], Arguments: string(arguments)}}}
			}
		}
		return modeltest.Reply{Text: "A title."}
	})
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": models.URL, "OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": models.URL + "/v1", "ARBE_MODEL": "anthropic/plain",
		"ARBE_SANDBOX_PRIVATE_HOSTS": "registry.npmjs.org", "ARBE_SANDBOX_MAX_MEMORY_MB": "2048",
	} {
		t.Setenv(name, value)
	}
	cfg := settings(t) // with a Postgres of its own, which dies
	packages := newInstallable(t, codex.Harness{}, claude.Harness{})
	cfg.Maxima.DiskMB, cfg.Local.Grace, cfg.Local.ReadOnly = 8192, 2*time.Minute, append(packages.dirs, installedHere(t, pi.Harness{}))
	a := &agents{cfg: cfg, server: startProcess(t, cfg), models: models, threads: map[string]string{}, lasting: map[string]string{}, hanging: map[string]string{}}
	c := client(t, cfg)
	parent, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	a.parent = parent.Thread
	house := parent.Thread.HouseId
	bots, err := c.Bots.ListBots(t.Context(), &arbev1.ListBotsRequest{HouseId: house})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bots.Bots {
		a.hasty(t, b)
		if b.Handle == "codex" {
			if _, err := c.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: house, Id: b.Id, Model: new("openai/plain"), SkipModelCheck: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	repository := "git init -q; " + hostileRepository() + "git add -A; git -c user.name=a -c user.email=a@b commit -q -m begin"
	// A mirror of packages at a private address may have a certificate that only this machine knows.
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "agents",
		Config: &arbev1.EnvironmentConfig{Setup: "npm config set strict-ssl false; " + repository}})
	if err != nil {
		t.Fatal(err)
	}
	first, whole, before := "", t, ""
	for _, agent := range []string{"pi", "codex", "claude"} {
		t.Run(agent, func(t *testing.T) {
			began := time.Now()
			made, err := c.Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: house, ParentThreadId: parent.Thread.Id, Task: "- as " + agent + ": fix it",
				Agent: "@" + agent, EnvironmentId: env.Environment.Id, Sandbox: a.box})
			if err != nil {
				t.Fatal(err)
			}
			child := made.Thread.Id
			a.threads[agent] = child
			first = cmp.Or(first, child)
			awaitLong(t, c, child, "I write it.")
			t.Logf("it works after %s", time.Since(began))
			if agent == "pi" { // the server is replaced by a newer one, while the older runner works
				before = a.runner(t, child)
				whole.Setenv(newer, "1")
				a.restart(whole)
				c = client(t, cfg)
			}
			if got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: child}); err != nil {
				t.Fatal(err)
			} else {
				a.box = got.Thread.SandboxId
			}
			if agent == "pi" { // the others are installed from packages of this machine, and so are all in later sandboxes
				if got := output(t, cfg, child, packages.start); got != "" {
					t.Fatalf("the registry does not start: %s", got)
				}
				if _, err := c.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: env.Environment.Id,
					Config: &arbev1.EnvironmentConfig{Setup: linkedHere(t, pi.Harness{}) + repository, Start: packages.start}}); err != nil {
					t.Fatal(err)
				}
			}
			run(t, c, child, "touch go-"+agent)
			log := awaitLong(t, c, child, `"from":"running"`)
			runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: child})
			if err != nil || len(runs.Runs) != 1 || runs.Runs[0].Status != arbev1.RunStatus_RUN_STATUS_COMPLETED || runs.Runs[0].Result != "The file says so." {
				t.Errorf("its runs are %v: %v\n%s", runs.GetRuns(), err, log)
			}
			if strings.Count(log, "\npi.assistant ") != 2 || strings.Count(log, "\npi.tool_result ") != 1 || !strings.Contains(log, "fixed") {
				t.Errorf("its log is\n%s", log)
			}
			await(t, c, parent.Thread.Id, func(e *arbev1.TailResponse) bool {
				return e.GetEntry().GetType() == (entry.Chat{}).Type() && strings.Contains(e.GetEntry().Payload, child) && strings.Contains(e.GetEntry().Payload, "The file says so.")
			})
			a.limited(t, agent)
			a.hang(t, agent)
		})
	}
	a.hung(t)
	if after := a.runner(t, a.hanging["pi"]); after == before { // in the same sandbox
		t.Errorf("after the upgrade, the runner is %s as before", after)
	}
	together(t, "each agent", func(t *testing.T, agent string) {
		c := client(t, cfg)
		stopAndContinue(t, c, models, a.threads[agent], agent)
		a.fails(t, agent)
		a.runnerKilled(t, agent)
		a.agentKilled(t, agent)
		a.longArguments(t, agent)
		a.ranNothing(t, a.threads[agent])
	})
	t.Run("codex continues what pi began", func(t *testing.T) {
		began, err := c.Runs.ContinueRun(t.Context(), &arbev1.ContinueRunRequest{ThreadId: first, Agent: "@codex", Task: "- as codex: go on", Sandbox: "parent"})
		if err != nil {
			t.Fatal(err)
		}
		run(t, c, began.ThreadId, "touch go-codex")
		if status := ends(t, c, began.ThreadId, began.Epoch); status != "completed" {
			t.Errorf("it ends as %s", status)
		}
		requests := slices.DeleteFunc(models.Requests(), func(r *modeltest.Request) bool { return !strings.Contains(string(r.Body), "- as codex: go on") })
		told := string(requests[len(requests)-1].Body)
		for _, said := range []string{"- as pi: fix it", "I write it.", "The file says so.", "- as codex: go on", "codex.txt"} {
			_, rest, ok := strings.Cut(told, said)
			if told = rest; !ok {
				t.Fatalf("the model is not told %q after the rest: %s", said, requests[len(requests)-1].Body)
			}
		}
	})
	t.Run("the rate limit lasts", a.limitLasts) // before the server ends, because an agent may then fail for that reason
	t.Run("the server is away, and is killed", func(t *testing.T) { a.serverKilled(t, whole) })
	t.Run("Postgres is killed", a.postgresKilled)
	together(t, "the sandbox is killed", a.sandboxKilled)
	together(t, "the model never answers", a.hangs)
	for _, r := range models.Requests() {
		if r.Key != "sk-test" {
			t.Errorf("the model was asked with the key %q", r.Key)
		}
	}
}

// stopAndContinue stops an agent in the middle of a command: the command's processes end, the command counts as interrupted,
// and the changes are kept. Then it continues the run in a fresh sandbox. The model gets the earlier conversation, and
// no command runs again.
func stopAndContinue(t *testing.T, c *arbe.Client, models *modeltest.Server, child, agent string) {
	held := "held-" + agent + ".txt"
	if _, err := c.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: child, Text: "- again as " + agent}); err != nil {
		t.Fatal(err)
	}
	run(t, c, child, "until test -e "+held+"; do sleep 0.05; done; echo now it holds")
	awaitLong(t, c, child, "now it holds\\n")
	awaitLong(t, c, child, "I hold.") // Codex reports a command after it has begun
	if got, err := c.Runs.CancelRun(t.Context(), &arbev1.CancelRunRequest{ThreadId: child}); err != nil || !got.Stopped {
		t.Fatalf("it is not stopped: %v", err)
	}
	log := awaitLong(t, c, child, `"to":"cancelled"`)
	runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: child})
	if err != nil || len(runs.Runs) != 2 || runs.Runs[0].Status != arbev1.RunStatus_RUN_STATUS_CANCELLED || runs.Runs[0].PatchArtifactId == "" {
		t.Errorf("after the stop, its runs are %v: %v\n%s", runs.GetRuns(), err, log)
	}
	if _, after, _ := strings.Cut(log, "I hold."); strings.Count(after, "\npi.tool_result ") != 1 || !strings.Contains(after, `"isError":true`) {
		t.Errorf("the call that was interrupted has no result:\n%s", log)
	}
	run(t, c, child, "pgrep -f '"+strings.Replace(holding(agent), "98", "[9]8", 1)+"' || echo nothing is left")
	awaitLong(t, c, child, "nothing is left\\n")

	before := len(models.Requests())
	if _, err := c.Runs.ContinueRun(t.Context(), &arbev1.ContinueRunRequest{ThreadId: child, Fresh: true}); err != nil {
		t.Fatal(err)
	}
	awaitLong(t, c, child, "I went on.")
	ends(t, c, child, 3)
	for _, r := range models.Requests()[before:] {
		body := string(r.Body)
		if !strings.Contains(body, "- again as "+agent) || !strings.Contains(body, "Continue.") {
			continue
		}
		for _, said := range []string{"- as " + agent, "I write it.", "The file says so.", "- again as " + agent, "I hold.", "Continue."} {
			_, rest, ok := strings.Cut(body, said)
			if body = rest; !ok {
				t.Fatalf("the model is not told %q after the rest: %s", said, r.Body)
			}
		}
	}
	run(t, c, child, "echo it was held $(wc -l <"+held+") time")
	awaitLong(t, c, child, "it was held 1 time\\n")
}

// failure is an answer of a model that ends a run, or that an agent survives.
type failure struct {
	what  string
	reply modeltest.Script
	// says is the answer in the log. causes are texts of which the run's error must contain one; empty if it succeeds.
	says   string
	causes []string
	// again is how often an agent has its model continue before it gives up.
	again map[string]int
}

// limited has the prompts whose first request was refused by a rate limit.
var limited sync.Map

var failures = []failure{
	{"a refused request", func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Status: 400, Error: modeltest.Error{Type: "invalid_request_error", Message: "the roof is on fire"}}
	}, "", []string{"roof is on fire"}, nil},
	{"a rate limit that passes", func(r *modeltest.Request) modeltest.Reply {
		if _, again := limited.LoadOrStore(r.Asked(), true); !again {
			return modeltest.Limited(1)(r)
		}
		return modeltest.Reply{Text: "All is well."}
	}, "All is well.", nil, nil},
	{"an answer that is cut by the limit of tokens", func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Text: "It begins", Stop: modeltest.StopLength}
	}, "It begins", []string{"limit", "max", "length", "truncated", "token"}, map[string]int{"claude": 3}},
	{"an answer without a word", func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{} }, "", []string{"no output"}, nil},
}

// fails lets an agent meet each of the failures.
func (a *agents) fails(t *testing.T, agent string) {
	child := a.threads[agent]
	for i, f := range failures {
		began := time.Now()
		if _, err := client(t, a.cfg).Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: child, Text: "- " + f.what + ", as " + agent}); err != nil {
			t.Fatal(err)
		}
		story := []string{"running"}
		for n := 0; f.says != "" && n <= f.again[agent]; n++ {
			story = append(story, "says: "+f.says)
		}
		if f.causes == nil {
			story = append(story, "reports: completed", "completed")
		} else {
			story = append(story, "reports: failed", "fails", "failed")
		}
		run := a.ended(t, child, int64(4+i), story...) // after the success, the stop and the continued run
		why := strings.ToLower(run.Error)
		t.Logf("after %s, %s in %s: %s", f.what, run.Status, time.Since(began), why)
		if f.causes != nil && !slices.ContainsFunc(f.causes, func(cause string) bool { return strings.Contains(why, cause) }) {
			t.Errorf("after %s, the cause is %q", f.what, why)
		}
	}
}

// ends waits for the end of a run, and returns the status that the log has then.
func ends(t *testing.T, c *arbe.Client, thread string, epoch int64) (status string) {
	t.Helper()
	await(t, c, thread, func(e *arbev1.TailResponse) bool {
		p, _ := entry.Decode(entry.Entry{Type: e.GetEntry().GetType(), Payload: json.RawMessage(e.GetEntry().GetPayload())})
		s, ok := p.(entry.StatusChanged)
		status = s.To
		return ok && s.Epoch == epoch && s.From == "running"
	})
	return status
}

// awaitLong follows a thread until an entry contains some words, for as long as installing an agent may take, and returns the
// entries so far.
func awaitLong(t testing.TB, c *arbe.Client, thread, words string) string {
	t.Helper()
	var log strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for e, err := range c.Tail(ctx, thread, 0) {
		if err != nil {
			t.Fatalf("following: %v\n%s", err, log.String())
		}
		if e.GetEntry() == nil {
			continue
		}
		log.WriteString("\n" + e.GetEntry().Type + " " + e.GetEntry().Payload)
		if strings.Contains(e.GetEntry().Payload, words) {
			return log.String()
		}
		if strings.Contains(e.GetEntry().Payload, `"to":"failed"`) {
			t.Fatalf("it failed:\n%s", log.String())
		}
	}
	t.Fatalf("it did not come:\n%s", log.String())
	return ""
}
