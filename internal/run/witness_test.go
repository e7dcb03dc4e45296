package run_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

// If an agent cannot tell success from failure, its success counts only if the gateway saw it. Other reports stand as
// they are.
func TestTheGatewayIsTheWitnessOfAgentsThatCannotTell(t *testing.T) {
	const cut = "the answer was cut"
	asked := make(chan int64, 20)
	w := setup(t, func(r *runner) {
		r.must(r.says("I work."))
		report := entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunCompleted, Result: "Done.", Through: 1}
		switch th := r.w.get(r.by.Thread); {
		case strings.HasPrefix(th.Name, "silent"):
			report.Result = ""
		case strings.HasPrefix(th.Name, "failed"):
			report.Outcome, report.Error = entry.RunFailed, "it says so"
		case strings.HasPrefix(th.Name, "unknown"): // the database is briefly unavailable, and the runner posts again
			if err := r.post(report); err == nil {
				r.w.t.Error("a report is taken without its witness")
			}
			r.next--
		}
		r.must(report)
	}, func(c *dispatch.Config) {
		c.Runs.Agents["weak"] = run.Agent{Title: "Weak", Version: "1.0", Install: "install weak", Witness: true}
		away := true
		c.Runs.Witness = func(_ context.Context, house, threadID string, epoch int64) (string, error) {
			asked <- epoch
			th, err := c.Threads.Get(context.Background(), db.Scope{House: house}, threadID)
			switch {
			case err != nil:
				return "", err
			case strings.HasPrefix(th.Name, "cut"):
				return cut, nil
			case strings.HasPrefix(th.Name, "unknown") && away:
				away = false
				return "", errors.New("the database is away")
			}
			return "", nil
		}
	})
	_, err := w.bots.Create(t.Context(), w.scope, bot.Draft{Handle: "weak", Runtime: "weak", Tools: []string{}})
	must(t, err)
	for _, c := range []struct {
		agent, task string
		status      thread.Status
		failed      string
	}{
		{"weak", "well", thread.Completed, ""},
		{"weak", "cut", thread.Failed, cut},
		{"weak", "silent", thread.Failed, "no output"},
		{"weak", "failed", thread.Failed, "it says so"},
		{"weak", "unknown", thread.Completed, ""},
		{"pi", "cut", thread.Completed, ""}, // pi can tell
	} {
		child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: c.task, Agent: "@" + c.agent})
		must(t, err)
		all := w.ends(child.ID, 1, c.status)
		reports, failures := of[entry.RunFinished](all), of[entry.PiFailed](all)
		if len(reports) != 1 || reports[0].Outcome != string(c.status) || !strings.Contains(reports[0].Error, c.failed) || (len(failures) == 1) != (c.failed != "") {
			t.Errorf("%s as %s: %s", c.task, c.agent, story(all))
		}
		told := w.until(w.home, func(e entry.Entry) bool {
			p, ok := entry.As[entry.ChildFinished](e)
			return ok && p.ChildThreadID == child.ID
		})
		if p, _ := entry.As[entry.ChildFinished](told[len(told)-1]); p.Outcome != string(c.status) || !strings.Contains(p.Error, c.failed) {
			t.Errorf("the thread above is told %+v", p)
		}
	}
	if n := len(asked); n != 5 {
		t.Errorf("the witness is asked %d times", n)
	}
}
