package server_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/acp"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// An agent of the Agent Client Protocol, in a real sandbox, does not report failure. So the outcome of the run depends on how
// the gateway saw the last model call end. Tools that need approval wait for a person.
func TestTheGatewayIsAWitness(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		switch said := r.Asked(); {
		case r.Last().Role == "tool":
			return modeltest.Reply{Text: "It says: " + r.Last().Text}
		case strings.Contains(said, "CUT"):
			return modeltest.Reply{Text: "It begins", Stop: modeltest.StopLength}
		case strings.Contains(said, "REFUSED"):
			return modeltest.Reply{Status: 400, Error: modeltest.Error{Type: "invalid_request_error", Message: "the roof is on fire"}}
		}
		tool := "bash"
		if slices.Contains(r.Tools, "run_shell_command") {
			tool = "run_shell_command"
		}
		return modeltest.Reply{Text: "I write it.", Calls: []modeltest.Call{{Name: tool, Arguments: `{"command":"echo written > file; cat file","description":"write"}`}}}
	})
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": models.URL, "GEMINI_API_KEY": "test", "GOOGLE_GEMINI_BASE_URL": models.URL, "ARBE_MODEL": "anthropic/plain",
		"ARBE_SANDBOX_MAX_MEMORY_MB": "2048",
	} {
		t.Setenv(name, value)
	}
	packages := newInstallable(t, acp.OpenCode(), acp.Gemini())
	cfg := served(t)
	cfg.Local.Grace, cfg.Local.ReadOnly = 2*time.Minute, packages.dirs
	startProcess(t, cfg)
	c := client(t, cfg)
	parent, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: parent.Thread.HouseId, Name: "agents",
		Config: &arbev1.EnvironmentConfig{Start: packages.start}})
	if err != nil {
		t.Fatal(err)
	}
	box := ""
	for _, agent := range []struct{ handle, model string }{{"opencode", "anthropic/plain"}, {"gemini", "google/plain"}} {
		t.Run(agent.handle, func(t *testing.T) {
			box = testWitness(t, c, parent.Thread, agent.handle, agent.model, env.Environment.Id, box)
		})
	}
}

// testWitness has an agent succeed and fail, in a sandbox or in a new one, and returns the sandbox.
func testWitness(t *testing.T, c *arbe.Client, parent *arbev1.Thread, handle, model, env, box string) string {
	house := parent.HouseId
	if _, err := c.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: handle, Runtime: handle}); err == nil || !strings.Contains(err.Error(), "there is no runtime") {
		t.Errorf("a runtime that does not exist: %v", err)
	}
	made, err := c.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: handle, Runtime: "acp-" + handle, Model: model, SkipModelCheck: true,
		Ask: &arbev1.Names{Values: []string{"run_command"}}})
	if err != nil {
		t.Fatal(err)
	}
	delegate := func(task string) string {
		t.Helper()
		d, err := c.Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: house, ParentThreadId: parent.Id, Task: task,
			Agent: "@" + made.Bot.Handle, EnvironmentId: env, Sandbox: box})
		if err != nil {
			t.Fatal(err)
		}
		return d.Thread.Id
	}
	ends := func(thread, status, words string) *arbev1.Run {
		t.Helper()
		await(t, c, thread, func(e *arbev1.TailResponse) bool {
			return e.GetEntry().GetType() == (entry.StatusChanged{}).Type() && strings.Contains(e.GetEntry().Payload, `"from":"running"`)
		})
		runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: thread})
		if err != nil || len(runs.Runs) != 1 || arbev1.Word(runs.Runs[0].Status) != status || !strings.Contains(runs.Runs[0].Result+runs.Runs[0].Error, words) {
			t.Fatalf("its runs are %v: %v", runs.GetRuns(), err)
		}
		return runs.Runs[0]
	}
	asks := delegate("WRITE it")
	awaitLong(t, c, asks, `"expires_ms"`)
	open, err := c.Approvals.ListApprovals(t.Context(), &arbev1.ListApprovalsRequest{HouseId: house, ThreadId: asks})
	if err != nil || len(open.Approvals) != 1 || !strings.Contains(open.Approvals[0].Arguments, "echo written") {
		t.Fatalf("it asks %v: %v", open.GetApprovals(), err)
	}
	if _, err := c.Approvals.AnswerApproval(t.Context(), &arbev1.AnswerApprovalRequest{ThreadId: asks, Id: open.Approvals[0].Id, Verdict: arbev1.Verdict_VERDICT_APPROVE}); err != nil {
		t.Fatal(err)
	}
	if r := ends(asks, "completed", "written"); r.GetUsage().GetInput() == 0 {
		t.Errorf("its usage is %v", r.Usage)
	}
	got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: asks})
	if err != nil {
		t.Fatal(err)
	}
	box = got.Thread.SandboxId
	ends(delegate("CUT"), "failed", "limit of tokens")
	ends(delegate("REFUSED"), "failed", "roof is on fire")
	return box
}
