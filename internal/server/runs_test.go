package server_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The real pi, in a real sandbox, asks a scripted model through the gateway.
func TestACodingAgentFromItsTaskToItsResult(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs pi")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "The file says so."}
		}
		return modeltest.Reply{Text: "I write it.", Calls: []modeltest.Call{{Name: "bash", Arguments: `{"command":"echo fixed > fixed.txt; cat fixed.txt"}`}}}
	})
	t.Setenv("ANTHROPIC_API_KEY", "sk-test")
	t.Setenv("ANTHROPIC_BASE_URL", models.URL)
	t.Setenv("ARBE_MODEL", "anthropic/plain")
	cfg := settings(t)
	cfg.Maxima = sandbox.Maxima{Limits: sandbox.Limits{DiskMB: 4096, MemoryMB: 2048}}
	cfg.Local.PrivateHosts = []string{"registry.npmjs.org"}
	start(t, cfg)
	c := client(t, cfg)
	parent, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	// A mirror of packages at a private address may have a certificate that only this machine knows.
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: parent.Thread.HouseId, Name: "pi",
		Config: &arbev1.EnvironmentConfig{Setup: "npm config set strict-ssl false"}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	made, err := c.Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: parent.Thread.HouseId, ParentThreadId: parent.Thread.Id, Task: "- fix it", EnvironmentId: env.Environment.Id})
	if err != nil {
		t.Fatal(err)
	}
	child := made.Thread.Id
	var all []string
	// Installing pi takes longer than what other tests wait for.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for e, err := range c.Tail(ctx, child, 0) {
		if err != nil {
			t.Fatalf("following: %v\n%s", err, strings.Join(all, "\n"))
		}
		if e.GetEntry() == nil {
			continue
		}
		all = append(all, e.GetEntry().Type+" "+e.GetEntry().Payload)
		t.Logf("%s %s", time.Since(began), e.GetEntry().Type)
		if e.GetEntry().Type == "signal.thread.status_changed" && !strings.Contains(e.GetEntry().Payload, `"to":"running"`) {
			break
		}
	}
	t.Logf("it took %s", time.Since(began))
	runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: child})
	if err != nil || len(runs.Runs) != 1 || runs.Runs[0].Status != "completed" || runs.Runs[0].Result != "The file says so." {
		t.Errorf("its runs are %v: %v\n%s", runs.GetRuns(), err, strings.Join(all, "\n"))
	}
	if log := strings.Join(all, "\n"); strings.Count(log, "\npi.assistant ") != 2 || strings.Count(log, "\npi.tool_result ") != 1 || !strings.Contains(log, "fixed") {
		t.Errorf("its log is\n%s", log)
	}
	await(t, c, parent.Thread.Id, func(e *arbev1.TailResponse) bool {
		return e.GetEntry().GetType() == (entry.Chat{}).Type() && strings.Contains(e.GetEntry().Payload, "The file says so.")
	})
	for _, r := range models.Requests() {
		if r.Key != "sk-test" {
			t.Errorf("the model was asked with the key %q", r.Key)
		}
	}
}
