package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// TestEveryPartOfAnAnswerCounts: a model server is not trusted, and whatever it writes is stored.
func TestEveryPartOfAnAnswerCounts(t *testing.T) {
	t.Parallel()
	calls := func(n int, one modeltest.Call) (list []modeltest.Call) {
		for i := range n {
			list = append(list, modeltest.Call{ID: fmt.Sprintf("%s%d", one.ID, i), Name: one.Name, Arguments: one.Arguments})
		}
		return list
	}
	for name, c := range map[string]struct {
		reply  modeltest.Reply
		most   int // MaxAnswer; 0 is the default
		stop   entry.PiStop
		blocks int
	}{
		"text that JSON makes six times as long":      {modeltest.Reply{Text: strings.Repeat("<", 400_000)}, 0, entry.PiLength, 1},
		"thinking that JSON makes six times as long":  {modeltest.Reply{Thinking: strings.Repeat("\x01", 20_000), Text: "x"}, 50_000, entry.PiLength, 1},
		"arguments that JSON makes six times as long": {modeltest.Reply{Calls: calls(1, modeltest.Call{Name: "read", Arguments: `"` + strings.Repeat("&", 20_000) + `"`})}, 50_000, entry.PiLength, 0},
		"one piece that is much too long":             {modeltest.Reply{Text: strings.Repeat("é", 100_000)}, 50_000, entry.PiLength, 1},
		"many names and ids":                          {modeltest.Reply{Calls: calls(100, modeltest.Call{ID: strings.Repeat("i", 200), Name: strings.Repeat("n", 64)})}, 10_000, entry.PiLength, 25},
		"256 blocks":                                  {modeltest.Reply{Text: "x", Calls: calls(255, modeltest.Call{ID: "c", Name: "read"})}, 0, entry.PiToolUse, 256},
		"more than 256 blocks":                        {modeltest.Reply{Calls: calls(300, modeltest.Call{ID: "c", Name: "read"})}, 0, entry.PiLength, 256},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, d model.Dialect) {
				s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return c.reply })
				pieces := 0
				a, err := (&model.Client{MaxAnswer: c.most}).Stream(within(t), at(s, d), "any", ask("?"), func(d model.Delta) { pieces += len(d.Text) })
				if err != nil || a.Message.StopReason != c.stop {
					t.Fatalf("it ends with %q (%v)", a.Message.StopReason, err)
				}
				if n := len(a.Message.Content); n > c.blocks || c.stop != entry.PiLength && n != c.blocks {
					t.Errorf("it has %d blocks, want %d", n, c.blocks)
				}
				most := c.most
				if most == 0 {
					most = 2 << 20
				}
				payload, err := json.Marshal(a.Message)
				if err != nil || len(payload) > most+1000 || pieces > most {
					t.Errorf("it is stored as %d bytes, its pieces have %d (%v)", len(payload), pieces, err)
				}
				if err := entry.Check(entry.NewDraft("", "", a.Message), entry.Server); err != nil {
					t.Errorf("it cannot be stored: %v", err)
				}
			})
		})
	}
}

// TestSignaturesCount writes its own events, because the scripted server has no long signature.
func TestSignaturesCount(t *testing.T) {
	t.Parallel()
	var events strings.Builder
	event := func(name, data string) { fmt.Fprintf(&events, "event: %s\ndata: %s\n\n", name, data) }
	event("message_start", `{"type":"message_start","message":{"id":"`+strings.Repeat("m", 1<<20)+`","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`)
	event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`)
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}`)
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"`+strings.Repeat("s", 3<<20)+`"}}`)
	s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Garbage: events.String()} })
	a, err := quick().Stream(within(t), at(s, model.Messages), "any", ask("?"), nil)
	payload, _ := json.Marshal(a.Message)
	if err != nil || a.Message.StopReason != entry.PiLength || len(payload) > 1000 || a.Message.Content[0].Thinking != "so" {
		t.Errorf("it ends with %q, and is stored as %d bytes (%v)", a.Message.StopReason, len(payload), err)
	}
}

func TestCallsWithLongNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for words, call := range map[string]modeltest.Call{
			"it calls a tool whose name has 65 bytes, more than 64":   {Name: strings.Repeat("n", 65)},
			"it has a part whose id has 65537 bytes, more than 65536": {ID: strings.Repeat("i", 65537), Name: "read"},
		} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Text: "I read.", Calls: []modeltest.Call{call}}
			})
			a, err := quick().Stream(within(t), at(s, d), "any", ask("?"), nil)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != model.Unreadable || !strings.HasSuffix(fault.From(err).Message, words) {
				t.Errorf("%q: the error is %v", words, err)
			}
			if a.Message.Text() != "I read." || len(a.Message.Calls()) > 0 {
				t.Errorf("%q: what is kept is %+v", words, a.Message.Content)
			}
		}
	})
}

// TestALineThatIsTooLong: without a limit, a server could fill the memory with one line.
func TestALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	for size, whole := range map[int]bool{3 << 20: true, 5 << 20: false} {
		usage := fmt.Sprintf(`{"id":"1","choices":[],"pad":%q,"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`, strings.Repeat("x", size))
		s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Garbage: `data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}` + "\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"}
		})
		a, err := quick().Stream(within(t), at(s, model.Chat), "any", ask("?"), nil)
		if a.Message.Text() != "Hi" || whole != (err == nil) || whole && a.Usage != (model.Usage{Input: 7, Output: 5}) || !whole && !strings.Contains(err.Error(), "an event of more than 4194304 bytes") {
			t.Errorf("with a line of %d bytes it answers %+v, %+v (%v)", size, a.Message, a.Usage, err)
		}
	}
}

// Some servers put a signature into the id of a call.
func TestACallWithALongIDGetsAShortOne(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Calls: []modeltest.Call{{ID: strings.Repeat("i", 5000), Name: "read", Arguments: `{"path":"x"}`}}}
	})
	for _, d := range dialects {
		a, err := new(model.Client).Stream(within(t), at(s, d), "any", ask("?"), nil)
		if calls := a.Message.Calls(); err != nil || len(calls) != 1 || len(calls[0].ID) > 64 || string(calls[0].Arguments) != `{"path":"x"}` {
			t.Errorf("%v: %v, %v", d, calls, err)
		}
	}
}
