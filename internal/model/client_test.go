package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/outbound"
)

const key = "sk-test-0123456789abcdef"

// dialects are those in which answers are compared closely. Gemini has neither broken arguments nor errors of tools.
var dialects = []model.Dialect{model.Messages, model.Chat, model.Responses}

// at returns the endpoint of a scripted server in a dialect.
func at(s *modeltest.Server, d model.Dialect) model.Endpoint {
	e := model.Endpoint{Provider: model.OpenAI, BaseURL: s.URL + "/v1", Key: key, Dialect: d, Trusted: true}
	switch d {
	case model.Messages:
		e.Provider, e.BaseURL = model.Anthropic, s.URL
	case model.Gemini:
		e.Provider, e.BaseURL = model.Google, s.URL
	}
	return e
}

// each runs a test in every dialect.
func each(t *testing.T, test func(t *testing.T, d model.Dialect)) {
	for _, d := range dialects {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func ask(text string) model.Request {
	return model.Request{System: "Be brief.", Messages: []entry.PiMessage{entry.PiUser{Content: []entry.PiBlock{entry.PiText(text)}}}}
}

// heard gathers deltas.
type heard struct {
	text, thinking, arguments string
	kinds                     []model.DeltaKind
}

func (h *heard) hear(d model.Delta) {
	switch d.Kind {
	case model.TextDelta:
		h.text += d.Text
	case model.ThinkingDelta:
		h.thinking += d.Text
	case model.CallArgsDelta:
		h.arguments += d.Text
	}
	if n := len(h.kinds); n == 0 || h.kinds[n-1] != d.Kind {
		h.kinds = append(h.kinds, d.Kind)
	}
}

// quick is a client with the defaults.
func quick() *model.Client { return new(model.Client) }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAnAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, nil)
		var h heard
		a, err := quick().Stream(within(t), at(s, d), "fake-answer", ask("What is up here?"), h.hear)
		if err != nil {
			t.Fatal(err)
		}
		m := a.Message
		if m.Text() != "What is up here?" || h.text != m.Text() || m.StopReason != entry.PiStopped {
			t.Errorf("the answer is %+v, and its deltas are %q", m, h.text)
		}
		if !reflect.DeepEqual(h.kinds, []model.DeltaKind{model.TextDelta}) {
			t.Errorf("the deltas are %v", h.kinds)
		}
		if m.API != string(d) || m.Model != "fake-answer" || m.ResponseID == "" || m.Timestamp == 0 {
			t.Errorf("it does not say where it is from: %+v", m)
		}
		if a.Usage != (model.Usage{Input: 100, Output: 20}) || a.Estimated || m.Usage.TotalTokens != 120 {
			t.Errorf("it used %+v (%+v)", a.Usage, m.Usage)
		}
		if a.CostKnown || m.Usage.Cost != nil {
			t.Errorf("a model without a price costs %v", a.Cost)
		}
		r := s.Requests()[0]
		if r.Key != key || r.System != "Be brief." || r.Asked() != "What is up here?" {
			t.Errorf("it was asked %+v", r)
		}
	})
}

func TestAResponseIsPaced(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		const long = 100_000
		s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: strings.Repeat("x", long)} })
		var h heard
		begun, bytes := 0, 0
		request := ask("Write much.")
		request.Pace = func(n int) (end func()) {
			if len(h.text) > bytes {
				t.Errorf("%d bytes were passed on, and only %d were to be checked", len(h.text), bytes)
			}
			begun++
			bytes += n
			return func() { begun-- }
		}
		if _, err := quick().Stream(within(t), at(s, d), "fake-answer", request, h.hear); err != nil {
			t.Fatal(err)
		}
		if len(h.text) != long || bytes < long || begun != 0 {
			t.Errorf("%d bytes came, %d were paced, and %d pieces have not ended", len(h.text), bytes, begun)
		}
	})
}

func TestAnAnswerSaysWhatItCost(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Text: "yes", Usage: &modeltest.Usage{Input: 1000, Output: 100, CacheRead: 10000, CacheWrite: 2000}}
	})
	// Claude Haiku 4.5: 1 dollar for a million tokens read, 5 written, 0.1 from the cache, 1.25 into it.
	a, err := quick().Stream(within(t), at(s, model.Messages), "claude-haiku-4-5-20251001", ask("?"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Usage != (model.Usage{Input: 1000, Output: 100, CacheRead: 10000, CacheWrite: 2000}) {
		t.Errorf("it used %+v", a.Usage)
	}
	if want := 5000 * model.Dollar / 1e6; a.Cost != want || !a.CostKnown || a.Message.Usage.Cost == nil || a.Message.Usage.Cost.Total != 0.005 {
		t.Errorf("it cost %v (%+v), want %v", a.Cost, a.Message.Usage.Cost, want)
	}

	// OpenAI's numbers of input include those of the cache.
	for _, d := range []model.Dialect{model.Chat, model.Responses} {
		a, err := quick().Stream(within(t), at(s, d), "gpt-5.1", ask("?"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Usage != (model.Usage{Input: 1000, Output: 100, CacheRead: 10000}) {
			t.Errorf("%s: it used %+v", d, a.Usage)
		}
	}
}

func TestATurnWithTools(t *testing.T) {
	t.Parallel()
	tools := []model.Tool{
		{Name: "read", Description: "reads", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"$ref":"#/$defs/path"}},"required":["path"],"$defs":{"path":{"type":"string"}}}`)},
		{Name: "list"},
	}
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, nil)
		r := ask(`{"path":"a b"}`)
		r.Tools = tools
		var h heard
		a, err := quick().Stream(within(t), at(s, d), "fake-tool~read~list", r, h.hear)
		if err != nil {
			t.Fatal(err)
		}
		calls := a.Message.Calls()
		if a.Message.StopReason != entry.PiToolUse || len(calls) != 2 || calls[0].Name != "read" || calls[1].Name != "list" || calls[0].ID == calls[1].ID {
			t.Fatalf("the answer is %+v", a.Message)
		}
		if string(calls[0].Arguments) != `{"path":"a b"}` || h.arguments != `{"path":"a b"}{"path":"a b"}` {
			t.Errorf("the arguments are %s, and their deltas %s", calls[0].Arguments, h.arguments)
		}
		if want := []model.DeltaKind{model.TextDelta, model.CallStartDelta, model.CallArgsDelta}; !reflect.DeepEqual(h.kinds[:3], want) {
			t.Errorf("the deltas are %v", h.kinds)
		}
		body := string(s.Requests()[0].Body)
		if !strings.Contains(body, `"required":["path"]`) || strings.Contains(body, "$ref") || !strings.Contains(body, `"path":{"type":"string"}`) {
			t.Errorf("the schema is not sent whole: %s", body)
		}

		// The next step: one result comes late, behind what someone said meanwhile, and one is an error.
		r.Messages = append(r.Messages, a.Message, entry.PiUser{Content: []entry.PiBlock{entry.PiText("Hurry!")}},
			entry.PiToolResult{ToolCallID: calls[1].ID, ToolName: "list", IsError: true, Content: []entry.PiBlock{entry.PiText("denied")}},
			entry.PiToolResult{ToolCallID: calls[0].ID, ToolName: "read", Content: []entry.PiBlock{entry.PiText("hello")}})
		if _, err = quick().Stream(within(t), at(s, d), "fake-answer", r, nil); err != nil {
			t.Fatal(err)
		}
		got := s.Requests()[1].Messages
		var roles []string
		for _, m := range got {
			roles = append(roles, m.Role)
		}
		if want := []string{"user", "assistant", "tool", "tool", "user"}; !reflect.DeepEqual(roles, want) {
			t.Fatalf("the messages are %v: %+v", roles, got)
		}
		if got[1].Calls[0].ID != calls[0].ID || got[2].CallID != calls[0].ID || got[2].Text != "hello" || got[3].Text != "denied" {
			t.Errorf("the results are %+v", got)
		}
		if d == model.Messages && (got[2].IsError || !got[3].IsError) {
			t.Errorf("which result is an error is not said: %+v", got)
		}
	})
}

func TestMessagesNeedNotBeTidy(t *testing.T) {
	t.Parallel()
	call := func(id string) entry.PiBlock {
		return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: "read", Arguments: json.RawMessage(`{}`)}
	}
	result := func(id, text string) entry.PiToolResult {
		return entry.PiToolResult{ToolCallID: id, ToolName: "read", Content: []entry.PiBlock{entry.PiText(text)}}
	}
	user := func(text string) entry.PiUser { return entry.PiUser{Content: []entry.PiBlock{entry.PiText(text)}} }
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, nil)
		r := model.Request{Messages: []entry.PiMessage{
			result("gone", "compacted"),
			user(""),
			user("one"),
			entry.PiAssistant{StopReason: entry.PiAborted, Content: []entry.PiBlock{entry.PiText("half"), call("c0")}},
			user("two"),
			entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{call("c1|fc_1")}},
			result("c1|fc_1", "first"),
			entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{{Type: entry.PiThinkingBlock, Thinking: "another's", ThinkingSignature: "x"}, call("c1"), call("c2")}},
			result("c1", "second"),
			user("three"),
		}}
		if _, err := quick().Stream(within(t), at(s, d), "fake-answer", r, nil); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range s.Requests()[0].Messages {
			line := []string{m.Role, m.Text}
			for _, c := range m.Calls {
				line = append(line, c.ID)
			}
			if m.Thinking != "" {
				t.Errorf("%s: another model's thinking was sent", d)
			}
			got = append(got, strings.Join(strings.Fields(strings.Join(line, " ")), " "))
		}
		all := strings.Join(got, "\n")
		for _, want := range []string{`user result of the tool "read": "compacted"`, "one", "assistant half", "assistant c1\ntool first\nassistant c1 c2\ntool second\ntool there is no result", "user three"} {
			if !strings.Contains(all, want) {
				t.Errorf("there is no %q in\n%s", want, all)
			}
		}
		if strings.Contains(all, "c0") {
			t.Errorf("the call of an answer that was stopped is sent:\n%s", all)
		}
	})
	for name, r := range map[string]model.Request{"no messages": {}, "an answer last": {Messages: []entry.PiMessage{user("a"), entry.PiAssistant{Content: []entry.PiBlock{entry.PiText("b")}}}}} {
		if _, err := quick().Stream(within(t), model.Endpoint{Provider: model.Ollama}, "x", r, nil); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestThinking(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, nil)
		var h heard
		r := ask("Why?")
		r.Effort = entry.EffortLow
		a, err := quick().Stream(within(t), at(s, d), "fake-reasoning", r, h.hear)
		if err != nil {
			t.Fatal(err)
		}
		if h.thinking != "Let me think." || a.Message.Text() != "Why?" || len(a.Message.Content) != 2 || a.Message.Content[0].Thinking != h.thinking {
			t.Errorf("the answer is %+v", a.Message)
		}
		if a.Usage.Output != 50 {
			t.Errorf("it used %+v", a.Usage)
		}
		body := string(s.Requests()[0].Body)
		if d != model.Responses && !strings.Contains(body, `"budget_tokens":2048`) && !strings.Contains(body, `"reasoning_effort":"low"`) {
			t.Errorf("the level is not sent: %s", body)
		}
		// It goes back to the model that thought it, where the dialect has that.
		r.Messages = append(r.Messages, a.Message, r.Messages[0])
		for _, name := range []string{"fake-reasoning", "fake-answer"} {
			if _, err := quick().Stream(within(t), at(s, d), name, r, nil); err != nil {
				t.Fatal(err)
			}
		}
		same, other := s.Requests()[1].Messages[1].Thinking, s.Requests()[2].Messages[1].Thinking
		if d != model.Responses && same != h.thinking || other != "" {
			t.Errorf("the same model gets %q, another one %q", same, other)
		}
	})
}

// Anthropic reads from its cache only what ended at a mark before, and looks for that in the 20 blocks before each mark.
func TestPromptsAreCached(t *testing.T) {
	t.Parallel()
	call := func(id string) entry.PiBlock {
		return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: "look", Arguments: json.RawMessage(`{}`)}
	}
	user := func(text string) entry.PiUser { return entry.PiUser{Content: []entry.PiBlock{entry.PiText(text)}} }
	answer := func(blocks ...entry.PiBlock) entry.PiAssistant {
		return entry.PiAssistant{StopReason: entry.PiToolUse, Content: blocks}
	}
	result := func(id string) entry.PiToolResult {
		return entry.PiToolResult{ToolCallID: id, ToolName: "look", Content: []entry.PiBlock{entry.PiText("result " + id)}}
	}
	question := []entry.PiMessage{user("one"), user("two")}
	step := append(question[:2:2], answer(entry.PiText("well"), call("a"), call("b")), result("a"), result("b"))
	next := append(step[:5:5], answer(entry.PiText("done")), answer(entry.PiText("really")), user("three"), user("four"))
	for name, c := range map[string]struct {
		messages []entry.PiMessage
		once     int
		want     []string
	}{
		"a question":                                  {question, 0, []string{"two"}},
		"the step after it":                           {step, 0, []string{"two", "result b"}},
		"the next question":                           {next, 0, []string{"result b", "four"}},
		"what only one request has":                   {append(next[:9:9], user("say yes or no")), 1, []string{"result b", "four"}},
		"what only one request has, after an answer":  {append(next[:7:7], user("say yes or no")), 1, []string{"result b", "really"}},
		"nothing that another request will have, too": {question[:1], 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, nil)
			r := ask("?")
			r.Messages, r.Once = c.messages, c.once
			if _, err := quick().Stream(within(t), at(s, model.Messages), "fake-answer", r, nil); err != nil {
				t.Fatal(err)
			}
			type block struct {
				Text    string
				Content []block
				Mark    any `json:"cache_control"`
			}
			var body struct {
				System   []block
				Messages []struct{ Content []block }
			}
			if err := json.Unmarshal(s.Requests()[0].Body, &body); err != nil {
				t.Fatal(err)
			}
			if body.System[0].Mark == nil {
				t.Error("the system prompt has no mark")
			}
			var marked []string
			for _, m := range body.Messages {
				for _, b := range m.Content {
					if len(b.Content) > 0 {
						b.Text = b.Content[0].Text
					}
					if b.Mark != nil {
						marked = append(marked, b.Text)
					}
				}
			}
			if !slices.Equal(marked, c.want) {
				t.Errorf("the marks are at %q, want %q", marked, c.want)
			}
		})
	}
}

// TestErrors shows each kind of failure in each dialect. No error has the key.
func TestErrors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for _, c := range []struct {
			model  string
			kind   model.Kind
			code   fault.Code
			passes bool // whether it is worth waiting
			text   string
		}{
			{"fake-401", model.BadKey, fault.Precondition, false, ""},
			{"fake-404", model.UnknownModel, fault.Precondition, false, ""},
			{"fake-500", model.Overload, fault.Unavailable, true, ""},
			{"fake-529", model.Overload, fault.Unavailable, true, ""},
			{"fake-overflow", model.Overflow, fault.Exhausted, false, ""},
			{"fake-nomoney", model.NoMoney, fault.Exhausted, false, ""},
			{"fake-refusal", model.Refusal, fault.Precondition, false, "*"},
			{"fake-cut", model.Cut, fault.Unavailable, true, "Tell "},
			{"fake-cut~1", model.Cut, fault.Unavailable, true, ""},
			{"fake-cut~-1", model.Unreachable, fault.Unavailable, true, ""},
			{"fake-fail", model.Overload, fault.Unavailable, true, "Tell me"},
			{"fake-garbage", model.Unreadable, fault.Unavailable, false, ""},
			{"fake-garbage~html", model.Unreadable, fault.Unavailable, false, ""},
			{"fake-429~3600", model.RateLimit, fault.Exhausted, true, ""},
		} {
			t.Run(c.model, func(t *testing.T) {
				t.Parallel()
				s := modeltest.New(t, nil)
				var h heard
				a, err := quick().Stream(within(t), at(s, d), c.model, ask("Tell me"), h.hear)
				var failed *model.Error
				if !errors.As(err, &failed) || failed.Kind != c.kind || fault.CodeOf(err) != c.code {
					t.Fatalf("the error is %#v: %v", failed, err)
				}
				if fault.From(err).Next == "" || strings.Contains(fmt.Sprintf("%+v %s %s", failed, fault.From(err).Detail(), err), key) {
					t.Errorf("it says %q", fault.From(err).Detail())
				}
				if n := len(s.Requests()); n != 1 || failed.Passing() != c.passes || c.passes && failed.Brief() == "" {
					t.Errorf("%d requests were sent; it passes: %v (%s)", n, failed.Passing(), failed.Brief())
				}
				if a.Message.StopReason != entry.PiError || a.Message.ErrorMessage == "" || a.Message.Text() != h.text || c.text != "*" && h.text != c.text {
					t.Errorf("what was written is %+v, heard %q", a.Message, h.text)
				}
				if c.text != "" && c.text != "*" && (a.Usage.Input == 0 || a.Usage.Output == 0) || c.kind == model.BadKey && a.Usage.Total() != 0 {
					t.Errorf("it used %+v", a.Usage)
				}
			})
		}
	})
}

func TestAServerThatDoesNotStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for body, want := range map[string]model.Kind{
			`{"error":{"message":"Provider returned error","code":402}}`:                        model.NoMoney,
			`{"id":"1","object":"chat.completion","choices":[{"message":{"content":"Hello"}}]}`: model.Unreadable,
		} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Garbage: body, ContentType: "application/json"}
			})
			_, err := quick().Stream(within(t), at(s, d), "m", ask("?"), nil)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != want || len(s.Requests()) != 1 {
				t.Errorf("%s: %v, after %d requests", body, err, len(s.Requests()))
			}
		}
	})
	t.Run("events under another type are an answer", func(t *testing.T) {
		t.Parallel()
		s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
			return modeltest.Reply{ContentType: "text/plain", Garbage: `data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"}
		})
		a, err := quick().Stream(within(t), at(s, model.Chat), "m", ask("Well?"), nil)
		if err != nil || a.Message.Text() != "Hi" || !a.Estimated || a.Usage.Input == 0 || a.Usage.Output == 0 {
			t.Errorf("%+v, %+v (%v)", a.Message, a.Usage, err)
		}
	})
}

// TestAProxysPage: the page of a web site in place of an answer is shown as a short text, and costs nothing.
func TestAProxysPage(t *testing.T) {
	t.Parallel()
	const page = `<!DOCTYPE html><html><head><title>403</title><style>p { color: red }</style></head><body><!-- x --><h1>Blocked &amp; logged</h1>
		<script>alert("boo")</script><p>Ask the <b>help desk</b>.</p></body></html>`
	each(t, func(t *testing.T, d model.Dialect) {
		for status, kind := range map[int]model.Kind{403: model.Unreachable, 502: model.Overload, 200: model.Unreadable} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{ContentType: "text/html", Garbage: page, Status: map[int]int{403: 403, 502: 502}[status]}
			})
			a, err := quick().Stream(within(t), at(s, d), "claude-haiku-4-5-20251001", ask("Hello"), nil)
			failed, isModel := errors.AsType[*model.Error](err)
			if !isModel || failed.Kind != kind || failed.Passing() != (kind == model.Overload) {
				t.Errorf("%d: %v", status, err)
			}
			if status != 200 && (failed.Said != "Blocked & logged Ask the help desk ." || !strings.Contains(err.Error(), "Blocked & logged")) {
				t.Errorf("%d: it says %q: %v", status, failed.Said, err)
			}
			if a.Usage.Total() != 0 || a.Cost != 0 {
				t.Errorf("%d: it used %+v and cost %v", status, a.Usage, a.Cost)
			}
		}
	})
}

func TestWhatPassesSaysSo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for _, c := range []struct {
			failure modeltest.Failure
			kind    model.Kind
			after   time.Duration
			brief   string
		}{
			{modeltest.Overloaded, model.Overload, 0, "overloaded"}, {modeltest.Broken, model.Overload, 0, "it fails"},
			{modeltest.OverloadedWithin, model.Overload, 0, "overloaded"}, {modeltest.Limited(90), model.RateLimit, 90 * time.Second, "too many requests"},
			{modeltest.Limited(0.02), model.RateLimit, 20 * time.Millisecond, "too many requests"}, {modeltest.Limited(0), model.RateLimit, 0, "too many requests"},
			{modeltest.CutWithin, model.Cut, 0, "the connection was lost"}, {modeltest.CutOff, model.Unreachable, 0, "it cannot be reached"},
			{modeltest.Silent, model.Idle, 0, "no answer"}, {modeltest.SilentWithin, model.Idle, 0, "no answer"},
		} {
			s := modeltest.New(t, modeltest.Flaky(nil, c.failure))
			client := &model.Client{HeaderTimeout: 300 * time.Millisecond, IdleTimeout: 300 * time.Millisecond}
			_, err := client.Stream(within(t), at(s, d), "any", ask("Hello"), nil)
			failed, isModel := errors.AsType[*model.Error](err)
			if !isModel || failed.Kind != c.kind || !failed.Passing() || failed.RetryAfter != c.after || !strings.HasPrefix(failed.Brief(), c.brief) {
				t.Errorf("want %s (%q): %v (%+v)", c.kind, c.brief, err, failed)
			}
			if a, err := client.Stream(within(t), at(s, d), "any", ask("Hello"), nil); err != nil || a.Message.Text() != "Hello" {
				t.Errorf("then it answers %+v (%v)", a.Message, err)
			}
		}
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for _, name := range []string{"fake-slow", "fake-endless"} {
			s := modeltest.New(t, nil)
			ctx, stop := context.WithCancel(within(t))
			var h heard
			over := false
			a, err := quick().Stream(ctx, at(s, d), name, ask("one two three"), func(delta model.Delta) {
				if over {
					t.Error("a delta came after the end")
				}
				h.hear(delta)
				stop()
			})
			over = true
			if !errors.Is(err, context.Canceled) || fault.CodeOf(err) != fault.Canceled || a.Message.StopReason != entry.PiAborted {
				t.Fatalf("%s: %+v (%v)", name, a.Message, err)
			}
			if h.text == "" || a.Message.Text() != h.text || a.Usage.Input == 0 || a.Usage.Output == 0 {
				t.Errorf("%s: what was written is %q (%+v), heard %q", name, a.Message.Text(), a.Usage, h.text)
			}
			r, err := s.Await(within(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-r.Gone:
			case <-within(t).Done():
				t.Errorf("%s: the connection stays open", name)
			}
		}
	})
}

func TestASilentProvider(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for name, client := range map[string]*model.Client{
			"fake-silent": {HeaderTimeout: 2 * time.Second}, // a slow machine needs part of it to send the request
			"fake-slow":   {IdleTimeout: 200 * time.Millisecond},
		} {
			s := modeltest.New(t, nil)
			var h heard
			a, err := client.Stream(within(t), at(s, d), name, ask("one two three"), h.hear)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != model.Idle || a.Message.Text() != h.text {
				t.Errorf("%s: %+v (%v)", name, a.Message, err)
			}
			r, err := s.Await(within(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-r.Gone:
			case <-within(t).Done():
				t.Errorf("%s: the connection stays open", name)
			}
		}
	})
}

func TestASlowReceiverIsNotASilentProvider(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	client := &model.Client{IdleTimeout: 30 * time.Second}
	// The receiver blocks until the server has written everything, however long that takes.
	first := sync.OnceFunc(func() {
		for range 3 {
			if err := s.Step(within(t)); err != nil {
				t.Error(err)
			}
		}
	})
	a, err := client.Stream(within(t), at(s, model.Chat), "fake-slow", ask("one two three"), func(model.Delta) { first() })
	if err != nil || a.Message.Text() != "one two three" {
		t.Errorf("%+v (%v)", a.Message, err)
	}
}

func TestAnAnswerThatIsTooLong(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, nil)
		client := &model.Client{MaxAnswer: 1000}
		a, err := client.Stream(within(t), at(s, d), "fake-endless", ask("?"), nil)
		if err != nil || a.Message.StopReason != entry.PiLength || len(a.Message.Text()) > 1100 || !a.Estimated || a.Usage.Output < 200 {
			t.Errorf("%s %+v, %d bytes (%v)", a.Message.StopReason, a.Usage, len(a.Message.Text()), err)
		}
		if a, err = quick().Stream(within(t), at(s, d), "fake-length", ask("half of it"), nil); err != nil || a.Message.StopReason != entry.PiLength || a.Message.Text() != "half of it" {
			t.Errorf("%+v (%v)", a.Message, err)
		}
	})
}

func TestOddCalls(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for name, c := range map[string]struct {
			reply     modeltest.Reply
			stop      entry.PiStop
			arguments string
		}{
			"an end that is called ordinary":                 {modeltest.Reply{Calls: []modeltest.Call{{Name: "read", Arguments: `{"a":1}`}}, Stop: modeltest.StopPlain}, entry.PiToolUse, `{"a":1}`},
			"no arguments":                                   {modeltest.Reply{Calls: []modeltest.Call{{Name: "read"}}}, entry.PiToolUse, `{}`},
			"broken arguments are not taken for none":        {modeltest.Reply{Calls: []modeltest.Call{{Name: "read", Arguments: `{"command":"rm -rf /tmp/x`}}}, entry.PiToolUse, `"{\"command\":\"rm -rf /tmp/x"`},
			"arguments that are cut are kept from being run": {modeltest.Reply{Calls: []modeltest.Call{{Name: "read", Arguments: `{"command":"rm -rf /tmp/x`}}, Stop: modeltest.StopLength}, entry.PiLength, ""},
		} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return c.reply })
			a, err := quick().Stream(within(t), at(s, d), "any", ask("?"), nil)
			if err != nil || a.Message.StopReason != c.stop {
				t.Errorf("%s: %+v (%v)", name, a.Message, err)
				continue
			}
			if calls := a.Message.Calls(); c.arguments != "" && (len(calls) != 1 || string(calls[0].Arguments) != c.arguments) {
				t.Errorf("%s: the calls are %+v", name, calls)
			}
			if text, err := json.Marshal(a.Message); err != nil || !json.Valid(text) {
				t.Errorf("%s: it cannot be stored: %v", name, err)
			}
		}
	})
}

// TestDeepArguments: Go's encoder refuses a document with more than 10,000 levels, and an entry adds some to those of the
// arguments.
func TestDeepArguments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for levels, kept := range map[int]bool{100: true, 101: false, 9_998: false, 20_000: false} {
			written := `{"a":` + strings.Repeat("[", levels-1) + `"]}\"{"` + strings.Repeat("]", levels-1) + "}"
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Calls: []modeltest.Call{{Name: "read", Arguments: written}}}
			})
			a, err := quick().Stream(within(t), at(s, d), "any", ask("?"), nil)
			if err != nil || len(a.Message.Calls()) != 1 {
				t.Fatalf("%d levels: %+v (%v)", levels, a.Message, err)
			}
			got := a.Message.Calls()[0].Arguments
			if quoted, _ := json.Marshal(written); kept && string(got) != written || !kept && string(got) != string(quoted) {
				t.Errorf("%d levels are kept as %.50s…", levels, got)
			}
			entry.NewDraft("", "", a.Message) // panics if it cannot be stored
			err = model.CheckArguments(model.Tool{Name: "read"}, got)
			if kept != (err == nil) || !kept && !strings.Contains(err.Error(), "read: the arguments are nested more than 100 levels deep") {
				t.Errorf("%d levels: the check says %v", levels, err)
			}
		}
	})
	if err := model.CheckArguments(model.Tool{Name: "read"}, json.RawMessage(strings.Repeat(`{"a":`, 101)+"1"+strings.Repeat("}", 101))); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("arguments of 101 levels that are not from an answer: %v", err)
	}
}

func TestOnlyItsOwnKeyIsSent(t *testing.T) {
	// t.Setenv does not go with t.Parallel.
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID",
		"ANTHROPIC_PROFILE", "GEMINI_API_KEY", "GOOGLE_API_KEY"} {
		t.Setenv(name, "leaked-"+strings.ToLower(name))
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Leaked: leaked-header")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Leaked: leaked-header")
	for _, d := range dialects {
		for _, own := range []string{key, ""} {
			s := modeltest.New(t, nil)
			e := at(s, d)
			e.Key = own
			if _, err := quick().Stream(within(t), e, "fake-answer", ask("?"), nil); err != nil {
				t.Fatal(err)
			}
			r := s.Requests()[0]
			if got := fmt.Sprint(r.Header, string(r.Body)); r.Key != own || strings.Contains(got, "leaked") || strings.Contains(got, "set-on-the-wire") {
				t.Errorf("%s: the key is %q, the request %s", d, r.Key, got)
			}
		}
	}
}

func TestEndpointsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	server := modeltest.New(t, nil)
	for name, c := range map[string]struct {
		endpoint model.Endpoint
		passes   bool
	}{
		"nobody listens": {model.Endpoint{Provider: model.Ollama, BaseURL: "http://" + closed.Addr().String(), Trusted: true}, true},
		"another path":   {model.Endpoint{Provider: model.OpenAI, BaseURL: server.URL + "/elsewhere", Trusted: true}, false},
	} {
		_, err := quick().Stream(within(t), c.endpoint, "m", ask("?"), nil)
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Kind != model.Unreachable || failed.Passing() != c.passes {
			t.Errorf("%s: the error is %v; it passes: %v", name, err, failed.Passing())
		}
	}

	t.Run("a member's name for an address that is not public", func(t *testing.T) {
		host, err := os.Hostname()
		if err != nil {
			t.Skip(err)
		}
		addresses, err := net.DefaultResolver.LookupNetIP(within(t), "ip", host)
		if err != nil || slices.ContainsFunc(addresses, outbound.Public) {
			t.Skipf("this machine's own name leads to %v (%v)", addresses, err)
		}
		e := model.Endpoint{Provider: model.Compatible, Name: "mine", BaseURL: "http://" + host + ":8080"}
		_, err = quick().Stream(within(t), e, "m", ask("?"), nil)
		if failed, isModel := errors.AsType[*model.Error](err); !isModel || !strings.Contains(err.Error(), "not public") || failed.Passing() {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestAProviderThatRepeatsTheKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		for name, reply := range map[string]modeltest.Reply{
			"as a refusal":         {Status: 400, Error: modeltest.Error{Type: "invalid_request_error", Message: "bad\nheader: Bearer " + key}},
			"as no JSON":           {Status: 400, Garbage: "Bearer " + key},
			"within the answer":    {Text: "So ", Fail: &modeltest.Error{Type: "invalid_request_error", Code: "invalid_request", Message: "key " + key}},
			"as what is no answer": {Garbage: "event: message_start\ndata: {" + key + "\n\n"},
		} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return reply })
			a, err := quick().Stream(within(t), at(s, d), "m", ask("?"), nil)
			var failed *model.Error
			if !errors.As(err, &failed) {
				t.Fatalf("%s: %v", name, err)
			}
			for at := err; at != nil; at = errors.Unwrap(at) {
				if shown := fmt.Sprintf("%+v %#v %s", at, at, a.Message.ErrorMessage); strings.Contains(shown, key) || strings.ContainsAny(at.Error(), "\n") {
					t.Errorf("%s: it says %s", name, shown)
				}
			}
		}
	})
}
