//go:build linux

package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// blocksOf returns what Anthropic's cache goes by: the tools, the system prompt, and the blocks of all messages with their
// roles, each as JSON, and the numbers of those that have a mark.
func blocksOf(t testing.TB, q *modeltest.Request) (blocks []string, marked []int) {
	t.Helper()
	type block = map[string]json.RawMessage
	var body struct {
		Tools, System []block
		Messages      []struct {
			Role    string
			Content []block
		}
	}
	if err := json.Unmarshal(q.Body, &body); err != nil {
		t.Fatal(err)
	}
	add := func(role string, b block) {
		if _, has := b["cache_control"]; has {
			marked = append(marked, len(blocks))
			delete(b, "cache_control")
		}
		text, _ := json.Marshal(b)
		blocks = append(blocks, role+" "+string(text))
	}
	for _, b := range body.Tools {
		add("tool", b)
	}
	for _, b := range body.System {
		add("system", b)
	}
	for _, m := range body.Messages {
		for _, b := range m.Content {
			add(m.Role, b)
		}
	}
	return blocks, marked
}

// continues fails unless each request begins with all that the one before it had.
func continues(t *testing.T, requests []*modeltest.Request) {
	t.Helper()
	for i := 1; i < len(requests); i++ {
		before, _ := blocksOf(t, requests[i-1])
		now, marked := blocksOf(t, requests[i])
		for n, b := range before {
			if n >= len(now) || now[n] != b {
				t.Fatalf("request %d does not have block %d of the request before it: %.400s\nbut %.400s", i, n, b, append(now, "nothing")[min(n, len(now))])
			}
		}
		// The provider looks for the end of the last request in the 20 blocks before each mark.
		found := false
		for _, m := range marked {
			found = found || m >= len(before)-1 && m-20 < len(before)-1
		}
		if !found {
			t.Errorf("request %d has marks at %v, but the one before it ended at %d", i, marked, len(before)-1)
		}
		if len(marked) > 4 {
			t.Errorf("request %d has %d marks", i, len(marked))
		}
	}
}

// TestRequestsOfAThreadContinueEachOther has much happen in a thread between the questions and while they are answered.
func TestRequestsOfAThreadContinueEachOther(t *testing.T) {
	t.Parallel()
	driver := newShelf()
	long := strings.Repeat("much that was said ", 600)
	r := botsOn(t, driver, func(q *modeltest.Request) modeltest.Reply {
		switch asked := q.Asked(); {
		case q.Last().Role == "tool" && len(q.Messages) > 1 && len(q.Messages[len(q.Messages)-2].Calls) < 2:
			return modeltest.Reply{Text: "I looked."}
		case strings.Contains(asked, "look around"):
			var all []modeltest.Call
			for range 30 { // more than 20 blocks
				all = append(all, modeltest.Call{Name: entry.ReadThreadTool, Arguments: `{"limit":2}`})
			}
			return modeltest.Reply{Text: "Let me look.", Calls: all}
		case strings.Contains(asked, "look"):
			return modeltest.Reply{Text: "Let me look.", Calls: []modeltest.Call{{Name: entry.ReadThreadTool, Arguments: `{}`}}}
		case strings.Contains(asked, "wait"):
			return modeltest.Reply{Text: "one two", Hold: true}
		}
		return modeltest.Reply{Text: "Well."}
	})
	r.settings.Model = "claude-sonnet-4-5" // which has a large window
	r.th = r.thread(sandbox.Recipe{})
	for i := range 3 {
		r.says(fmt.Sprint("before", i), long)
	}
	slow := r.ask(r.th, "slow")
	r.says("one", "@bot look")
	r.answer("one")
	quick := r.ask(r.th, "quick")
	driver.end("quick")
	r.result(r.th, quick)
	r.says("two", "@bot look again")
	r.answer("two")
	driver.end("slow")
	r.result(r.th, slow)
	for i := range 30 {
		r.says(fmt.Sprint("talk", i), "by the way")
	}
	r.says("three", "@bot wait")
	r.awaitRequests(5)
	r.says("four", "@bot and this?")
	r.until(func(e entry.Entry) bool { s, ok := entry.As[entry.TurnSteered](e); return ok && s.EntryID == "four" })
	ctx, held := context.WithCancel(t.Context())
	go func() {
		for r.models.Step(ctx) == nil {
		}
	}()
	r.answer("three")
	held()
	r.answer("four")
	r.says("five", "@bot wait")
	r.awaitRequests(7)
	r.stopAll(1)
	r.end("five")
	r.says("six", "@bot look around")
	r.answer("six")
	r.says("seven", "@bot what did you read?")
	r.answer("seven")
	all := r.models.Requests()
	continues(t, all)
	if len(all) < 10 {
		t.Errorf("there were only %d requests", len(all))
	}
	if read := all[1].Last(); len(read.Text) < 5<<10 {
		t.Errorf("the bot read only %d bytes in its first turn, which would not be shortened", len(read.Text))
	}
}
