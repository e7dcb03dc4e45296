package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/secret"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The queue of a real agent: three messages wait while it works, and people edit, move and cancel them. The server is killed
// after each change, which is then sent again. The model gets exactly what is left, in its order, once, and the log says so.
func TestTheQueueOfARealAgentOutlivesItsServer(t *testing.T) {
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		switch {
		case r.Last().Role == "tool":
			return modeltest.Reply{Text: "The task is done."}
		case strings.Contains(r.Asked(), "wait for the file"):
			arguments, _ := json.Marshal(map[string]string{"command": "until test -e go; do sleep 0.05; done"})
			return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{{Name: "bash", Arguments: string(arguments)}}}
		}
		return modeltest.Reply{Text: "Done, too."}
	})
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": models.URL, "ARBE_MODEL": "anthropic/plain", "ARBE_SANDBOX_MAX_MEMORY_MB": "2048",
	} {
		t.Setenv(name, value)
	}
	cfg := served(t)
	cfg.Local.Grace, cfg.Local.ReadOnly = 2*time.Minute, []string{installedHere(t, pi.Harness{})}
	process := startProcess(t, cfg)
	c := client(t, cfg)
	killed := func() {
		t.Helper()
		process.Process.Kill()
		process.Wait()
		process = startProcess(t, cfg)
		c = client(t, cfg)
	}
	parent, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: newThread(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: parent.Thread.HouseId, Name: "agents",
		Config: &arbev1.EnvironmentConfig{Setup: linkedHere(t, pi.Harness{})}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Runs.Delegate(t.Context(), &arbev1.DelegateRequest{HouseId: parent.Thread.HouseId, ParentThreadId: parent.Thread.Id,
		Task: "Please wait for the file.", Agent: "@pi", EnvironmentId: env.Environment.Id})
	if err != nil {
		t.Fatal(err)
	}
	child := made.Thread.Id
	awaitLong(t, c, child, "I wait.")

	// pi takes messages while it works, so these choose to wait.
	for _, m := range [][2]string{{"one", "the orange"}, {"two", "the blue"}, {"three", "the green"}} {
		if _, err := c.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: child, Id: m[0], Text: m[1], Queue: true}); err != nil {
			t.Fatal(err)
		}
	}
	killed()
	waits := func(c *arbe.Client) (list []string) {
		t.Helper()
		q, err := c.Runs.ListQueue(t.Context(), &arbev1.ListQueueRequest{ThreadId: child})
		if err != nil || !q.Steers {
			t.Fatalf("the queue is %v: %v", q, err)
		}
		for _, m := range q.Messages {
			if !m.Queue {
				t.Errorf("%s does not wait for the current work", m.EntryId)
			}
			list = append(list, m.EntryId+": "+m.Text)
		}
		return list
	}
	if got := waits(c); !slices.Equal(got, []string{"one: the orange", "two: the blue", "three: the green"}) {
		t.Fatalf("what waits is %q", got)
	}
	for _, req := range []*arbev1.ChangeQueueRequest{
		{EntryId: "two", Change: &arbev1.ChangeQueueRequest_Edit{Edit: "the better blue"}},
		{EntryId: "three", Change: &arbev1.ChangeQueueRequest_Move_{Move: &arbev1.ChangeQueueRequest_Move{BeforeEntryId: "one"}}},
		{EntryId: "one", Change: &arbev1.ChangeQueueRequest_Cancel_{Cancel: &arbev1.ChangeQueueRequest_Cancel{}}},
	} {
		req.ThreadId, req.Once = child, "change "+req.EntryId
		for n := range 2 { // the answer of the first may have been lost with the server
			if _, err := c.Runs.ChangeQueue(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				killed()
			}
		}
	}
	if got := waits(c); !slices.Equal(got, []string{"three: the green", "two: the better blue"}) {
		t.Errorf("what waits is %q", got)
	}
	for _, r := range models.Requests() {
		if body := string(r.Body); strings.Contains(body, "the orange") || strings.Contains(body, "the green") {
			t.Error("the agent got a message during its work")
		}
	}
	run(t, c, child, "touch go")
	killed()
	log := awaitLong(t, c, child, `"result":"Done, too."`)

	var last *modeltest.Request
	for _, r := range models.Requests() {
		if strings.Contains(string(r.Body), "wait for the file") && slices.Contains(r.Tools, "bash") {
			last = r
		}
	}
	var users []string
	for _, m := range last.Messages {
		if m.Role == "user" {
			users = append(users, m.Text)
		}
	}
	if len(users) != 2 || !strings.Contains(users[0], "wait for the file") || users[1] != "the green\n\nthe better blue" {
		t.Errorf("the model was told %q", users)
	}
	runs, err := c.Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: child})
	// If the agent ends before the runner has read the log again, the next run takes the messages.
	if err != nil || len(runs.Runs) > 2 || !slices.ContainsFunc(runs.Runs, func(r *arbev1.Run) bool {
		return r.Status == arbev1.RunStatus_RUN_STATUS_COMPLETED && r.Result == "Done, too."
	}) {
		t.Errorf("the runs are %v: %v", runs.GetRuns(), err)
	}
	var changes []string
	list, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: child, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Entries {
		switch e.Type {
		case (entry.QueueEdited{}).Type(), (entry.QueueMoved{}).Type(), (entry.QueueCancelled{}).Type():
			changes = append(changes, strings.TrimPrefix(e.Type, "signal.queue."))
		case (entry.QueueTaken{}).Type():
			changes = append(changes, strings.Join(decode[entry.QueueTaken](t, e).EntryIDs, "+"))
		}
	}
	if len(changes) != 5 || !slices.Equal(changes[1:], []string{"edited", "moved", "cancelled", "three+two"}) {
		t.Errorf("the log has %q:\n%s", changes, log)
	}
}

// The door answers 412 to a runner that takes a message without having read a change of the queue. A runner repeats a request
// that is answered with 409 forever.
func TestTheDoorRefusesATakingOfWhatChanged(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	var err error
	if cfg.SecretKey, err = secret.NewKey(); err != nil {
		t.Fatal(err)
	}
	s := start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	th, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		t.Fatal(err)
	}
	token := runToken(t, cfg, th.Thread.HouseId, thread)
	said := say(t, c, thread, "first")
	if _, err := c.Runs.ChangeQueue(t.Context(), &arbev1.ChangeQueueRequest{ThreadId: thread, EntryId: said.Id, Change: &arbev1.ChangeQueueRequest_Edit{Edit: "second"}}); err != nil {
		t.Fatal(err)
	}
	for n, take := range []struct {
		read   int64
		status int
	}{{said.Seq, http.StatusPreconditionFailed}, {said.Seq + 1, http.StatusNoContent}} {
		body := fmt.Sprintf(`{"id":"run.1.take.%d","ts":"2026-01-01T00:00:00Z","payload":{"type":"signal.queue.taken","epoch":1,"entry_ids":[%q],"read":%d}}`, n, said.Id, take.read)
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/api/stream/arbe-thread-"+thread, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != take.status {
			t.Errorf("a taking after reading up to %d is answered with %d, want %d", take.read, res.StatusCode, take.status)
		}
	}
}
