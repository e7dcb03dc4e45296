package all_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
)

// What an agent wrote before it ended in the middle of an answer is kept, without a call that did not begin.
func TestAnAnswerThatIsCutIsKept(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"codex": {`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`, `{"id":3,"result":{"turn":{"id":"u"}}}`,
			item("completed", `{"type":"agentMessage","id":"m","text":"I hold."}`)},
		"claude-code": {
			`{"type":"assistant","message":{"id":"m","model":"plain","role":"assistant","content":[{"type":"text","text":"I hold."}]}}`,
			`{"type":"assistant","message":{"id":"m","model":"plain","role":"assistant","content":[{"type":"tool_use","id":"c","name":"Bash","input":{"command":"true"}}]}}`,
		},
	} {
		h, ok := all.Named(name)
		if !ok {
			t.Fatalf("there is no harness %s", name)
		}
		r := h.Read(harness.Job{}, "", "")
		for _, line := range lines {
			for _, e := range r.Line([]byte(line), 0) {
				if e.Message != nil {
					t.Errorf("%s: the answer is complete: %+v", name, e.Message)
				}
			}
		}
		o := r.Decide(harness.Exit{Code: 1})
		if a, _ := o.Rest.(entry.PiAssistant); a.Text() != "I hold." || a.StopReason != entry.PiAborted || len(a.Calls()) > 0 || o.Failed == "" {
			t.Errorf("%s: the outcome is %+v", name, o)
		}
	}
}
