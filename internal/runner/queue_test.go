package runner_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/acp"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// change adds a change of a person.
func (w *world) change(p entry.Payload) { w.say(person, p.Type(), p) }

// The agent takes one prompt at a time. While it works, the queue is edited, moved and cancelled. Then it receives
// the rest.
func TestAChangedQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, acp.Gemini(), func(r *modeltest.Request) modeltest.Reply {
		switch {
		case strings.Contains(r.Asked(), "third"):
			return modeltest.Reply{Text: "You said " + r.Asked()}
		case r.Last().Role == "tool":
			return modeltest.Reply{Text: "The first."}
		}
		return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{bash["acp-gemini"]("until test -e go; do :; done")}}
	})
	w.chat("wait")
	r := w.start()
	w.await(w.ctx, "the tool call", w.has("pi.assistant", "I wait."))
	var ids []string
	for _, text := range []string{"the first", "the second", "the third"} {
		ids = append(ids, w.id(w.chat(text)))
	}
	w.change(entry.QueueEdited{EntryID: ids[1], Text: "the better second"})
	w.change(entry.QueueMoved{EntryID: ids[2], Before: ids[0]})
	w.change(entry.QueueCancelled{EntryID: ids[0]})
	if err := os.WriteFile(filepath.Join(w.spec.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := r.finish(); f.Outcome != "completed" || f.Result != "You said the third\n\nthe better second" {
		t.Errorf("the report is %+v", f)
	}
	if w.refused != 0 {
		t.Errorf("the door refused %d takings", w.refused)
	}
}

// id returns the id of the entry at a position.
func (w *world) id(seq int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log[seq-1].ID
}

// Somebody edits a message at the moment when the runner takes it. The agent receives the edited text, and only that.
func TestAnEditAgainstTheRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "You said " + r.Asked()} })
	id := w.id(w.chat("what was said"))
	w.beforeTaking = func() {
		text, _ := json.Marshal(entry.QueueEdited{EntryID: id, Text: "what was meant"})
		w.append(row{ID: "edit", Type: entry.QueueEdited{}.Type(), Author: person, Payload: text})
	}
	if f := w.start().finish(); f.Outcome != "completed" || f.Result != "You said what was meant" {
		t.Errorf("the report is %+v", f)
	}
	if w.refused != 1 {
		t.Errorf("the door refused %d takings, want the first", w.refused)
	}
}

// A task that is cancelled before the agent begins never begins.
func TestACancelledTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(*modeltest.Request) modeltest.Reply {
		t.Error("the model was asked")
		return modeltest.Reply{}
	})
	id := w.id(w.chat("delete everything"))
	w.beforeTaking = func() {
		text, _ := json.Marshal(entry.QueueCancelled{EntryID: id})
		w.append(row{ID: "cancel", Type: entry.QueueCancelled{}.Type(), Author: person, Payload: text})
	}
	if f := w.start().finish(); f.Outcome != "cancelled" {
		t.Errorf("the report is %+v", f)
	}
}

// The answer to a take is lost. The runner asks again, and the agent gets the message once.
func TestATakingWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "You said " + r.Asked()} })
	w.chat("once")
	w.beforeTaking = func() { w.drop = 1 }
	if f := w.start().finish(); f.Outcome != "completed" || f.Result != "You said once" {
		t.Errorf("the report is %+v", f)
	}
	if got := strings.Count(w.dump(), ".take.0 "); got != 1 {
		t.Errorf("it was taken %d times", got)
	}
}

// The run is over when the runner takes a message, for example because a later run has begun. The agent does not
// begin.
func TestATakingOfARunThatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(*modeltest.Request) modeltest.Reply {
		t.Error("the model was asked")
		return modeltest.Reply{}
	})
	w.chat("too late")
	w.beforeTaking = func() { w.ended, w.status = true, http.StatusForbidden }
	if code := w.start().exit(); code != 3 {
		t.Errorf("it ended with %d", code)
	}
}

// A later run in a new sandbox gets the messages as the agent got them, not as they were before an edit.
func TestARebuiltSessionHasWhatTheAgentWasTold(t *testing.T) {
	t.Parallel()
	var seen string
	w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
		var all []string
		for _, m := range r.Messages {
			all = append(all, m.Role+": "+m.Text)
		}
		seen = strings.Join(all, "\n")
		return modeltest.Reply{Text: "Done."}
	})
	first, second := w.id(w.chat("one, as it was")), w.id(w.chat("two, which is cancelled"))
	w.change(entry.QueueEdited{EntryID: first, Text: "one, as it is"})
	w.change(entry.QueueCancelled{EntryID: second})
	w.start().finish()
	third := w.chat("three")
	w.again(third - 1)
	w.spec.Fresh = true
	if f := w.start().finish(); f.Outcome != "completed" {
		t.Errorf("the report is %+v", f)
	}
	if strings.Contains(seen, "as it was") || strings.Contains(seen, "cancelled") || strings.Count(seen, "one, as it is") != 1 || !strings.Contains(seen, "three") {
		t.Errorf("the agent is told\n%s", seen)
	}
}

// An agent that takes messages while it works gets one at once, unless its author lets it wait: then it is the next prompt.
// Whoever sends it now changes that.
func TestTheTimeOfAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pi.Harness{}, func(r *modeltest.Request) modeltest.Reply {
		if r.Seen == 0 {
			return modeltest.Reply{Text: "I wait.", Calls: []modeltest.Call{bash["pi"]("until test -e go; do sleep 0.02; done")}}
		}
		return modeltest.Reply{Text: "You said " + r.Asked()}
	})
	w.chat("wait")
	r := w.start()
	w.await(w.ctx, "the tool call", w.has("pi.assistant", "I wait."))
	var ids []string
	for _, text := range []string{"later", "sent now"} {
		ids = append(ids, w.id(w.say(person, "chat", entry.Chat{Text: text, Queue: true})))
	}
	ids = append(ids, w.id(w.chat("at once")))
	w.await(w.ctx, "the message that goes at once", w.has("signal.queue.taken", ids[2]))
	w.change(entry.QueueTimed{EntryID: ids[1]})
	w.await(w.ctx, "the message that is sent now", w.has("signal.queue.taken", ids[1]))
	if w.has("signal.queue.taken", ids[0])() {
		t.Error("the message that waits is taken, too")
	}
	if err := os.WriteFile(filepath.Join(w.spec.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := r.finish(); f.Outcome != "completed" || f.Result != "You said later" {
		t.Errorf("the report is %+v", f)
	}
}
