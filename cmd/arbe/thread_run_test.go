package main

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestDiagnosisAndItsExitCode(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
	run := func(word string) []*arbev1.Run {
		status, _ := arbev1.FromWord[arbev1.RunStatus](word)
		r := &arbev1.Run{Epoch: 1, Status: status, Error: "no model"}
		if status == arbev1.RunStatus_RUN_STATUS_FAILED {
			r.FailurePhase = arbev1.FailurePhase_FAILURE_PHASE_DISPATCH
		}
		return []*arbev1.Run{r}
	}
	for name, test := range map[string]struct {
		thread *arbev1.Thread
		runs   []*arbev1.Run
		stage  string
		code   int
		why    string // if it has one although the code is 0
	}{
		"a chat":                          {thread: &arbev1.Thread{LastActivityAt: ago(time.Hour)}, stage: "no coding agent drives this thread"},
		"a run that is prepared":          {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Second)}, stage: "dispatch: the sandbox and the agent are being prepared"},
		"a run that does not begin":       {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(3 * time.Minute)}, stage: "dispatch", code: exitRunStalled},
		"a run at work":                   {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Second)}, runs: run("running"), stage: "execution"},
		"a run whose tool call is long":   {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour), LastRun: &arbev1.LastRun{HeartbeatAt: ago(5 * time.Second)}}, runs: run("running"), stage: "execution"},
		"a run without heartbeats":        {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour), LastRun: &arbev1.LastRun{HeartbeatAt: ago(3 * time.Minute)}}, runs: run("running"), stage: "execution", code: exitRunStalled},
		"a run that was just silent":      {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour), LastRun: &arbev1.LastRun{HeartbeatAt: ago(70 * time.Second)}}, runs: run("running"), stage: "execution", code: exitRunStalled},
		"a run that was never heard":      {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(3 * time.Minute), LastRun: &arbev1.LastRun{}}, runs: run("running"), stage: "execution", code: exitRunStalled},
		"a run that failed":               {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour)}, runs: run("failed"), stage: "dispatch", code: exitRunFailed},
		"a run that was completed":        {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour)}, runs: run("completed"), stage: "ended"},
		"a run that was stopped long ago": {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour)}, runs: run("cancelled"), stage: "ended"},
		"a run without its changes": {thread: &arbev1.Thread{AgentId: "pi", LastActivityAt: ago(time.Hour)}, stage: "result-collection", why: "too large",
			runs: []*arbev1.Run{{Epoch: 1, Status: arbev1.RunStatus_RUN_STATUS_COMPLETED, FailurePhase: arbev1.FailurePhase_FAILURE_PHASE_RESULT_COLLECTION, Error: "too large", Next: "look"}}},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel, because the times are from now
			v, code := diagnosis(test.thread, test.runs)
			if v.Stage != test.stage || code != test.code || test.why != "" && v.Why != test.why || (code != 0 || test.why != "") != (v.Why != "" && v.Next != "") {
				t.Errorf("it is %+v with exit code %d, want stage %q and %d", v, code, test.stage, test.code)
			}
		})
	}
}

// A watched list prints a line for a thread that changed, and none for each heartbeat of its agent.
func TestAHeartbeatIsNoChangeOfAThread(t *testing.T) {
	t.Parallel()
	at := func(seconds int64, doing string) *arbev1.Thread {
		return &arbev1.Thread{Id: "t", LastRun: &arbev1.LastRun{Epoch: 1, Doing: doing, HeartbeatAt: &timestamppb.Timestamp{Seconds: seconds}}}
	}
	if !sameButBeat(at(5, "thinking"), at(10, "thinking")) {
		t.Error("a heartbeat counts as a change")
	}
	if sameButBeat(at(5, "thinking"), at(10, "running bash")) || sameButBeat(&arbev1.Thread{Id: "t"}, at(5, "thinking")) {
		t.Error("a change does not count")
	}
}
