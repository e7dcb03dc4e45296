package model_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// sent returns the fields of the body of a server's n-th request as JSON texts.
func sent(t *testing.T, s *modeltest.Server, n int) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(s.Requests()[n].Body, &raw); err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for name, text := range raw {
		fields[name] = string(text)
	}
	return fields
}

// Each model is told in the words of its provider how hard to think; a field that is not named is not sent.
func TestEffortOnTheWire(t *testing.T) {
	t.Parallel()
	const off, low, medium, high, none = entry.EffortOff, entry.EffortLow, entry.EffortMedium, entry.EffortHigh, entry.EffortDefault
	router := model.Dialect("openrouter")
	for _, c := range []struct {
		dialect model.Dialect
		model   string
		effort  entry.Effort
		max     int64
		sent    map[string]string
	}{
		// A number of tokens, which leaves room for the answer.
		{model.Messages, "claude-sonnet-4-5", low, 0, map[string]string{"thinking": `{"budget_tokens":2048,"type":"enabled"}`}},
		{model.Messages, "claude-sonnet-4-5", high, 0, map[string]string{"thinking": `{"budget_tokens":24576,"type":"enabled"}`}},
		{model.Messages, "claude-sonnet-4-5", high, 4000, map[string]string{"thinking": `{"budget_tokens":2000,"type":"enabled"}`}},
		{model.Messages, "claude-sonnet-4-5", low, 512, nil},
		{model.Messages, "claude-sonnet-4-5", off, 0, nil},
		{model.Messages, "claude-sonnet-4-5", none, 0, nil},
		{model.Messages, "claude-sonnet-4-6", medium, 0, map[string]string{"thinking": `{"type":"adaptive"}`, "output_config": `{"effort":"medium"}`}},
		{model.Messages, "claude-sonnet-4-6", off, 0, nil},
		{model.Responses, "gpt-5.1", high, 0, map[string]string{"reasoning": `{"effort":"high","summary":"auto"}`, "include": `["reasoning.encrypted_content"]`}},
		{model.Responses, "gpt-5.1", off, 0, map[string]string{"reasoning": `{"effort":"minimal","summary":"auto"}`, "include": `["reasoning.encrypted_content"]`}},
		{model.Responses, "gpt-5.6-sol", off, 0, map[string]string{"reasoning": `{"effort":"none","summary":"auto"}`, "include": `["reasoning.encrypted_content"]`}},
		{model.Responses, "gpt-5.4-pro", low, 0, map[string]string{"reasoning": `{"effort":"medium","summary":"auto"}`, "include": `["reasoning.encrypted_content"]`}},
		{model.Responses, "gpt-5.1", none, 0, map[string]string{"include": `["reasoning.encrypted_content"]`}},
		{model.Responses, "gpt-4.1", high, 0, nil}, // it cannot think, and refuses an include
		{model.Chat, "gpt-5.1", medium, 0, map[string]string{"reasoning_effort": `"medium"`}},
		{model.Chat, "gpt-5.1", none, 0, nil},
		{model.Chat, "some-model", low, 0, map[string]string{"reasoning_effort": `"low"`}}, // perhaps it can
		{model.Chat, "some-model", off, 0, map[string]string{"reasoning_effort": `"none"`}},
		{model.Gemini, "gemini-2.5-pro", low, 0, map[string]string{"thinkingConfig": `{"includeThoughts":true,"thinkingBudget":2048}`}},
		{model.Gemini, "gemini-2.5-pro", low, 512, map[string]string{"thinkingConfig": `{"includeThoughts":true,"thinkingBudget":256}`}},
		{model.Gemini, "gemini-2.5-pro", off, 0, map[string]string{"thinkingConfig": `{"thinkingBudget":128}`}}, // the least that it takes
		{model.Gemini, "gemini-3-pro-preview", medium, 0, map[string]string{"thinkingConfig": `{"includeThoughts":true,"thinkingLevel":"HIGH"}`}},
		{model.Gemini, "gemini-3-flash-preview", off, 0, map[string]string{"thinkingConfig": `{"thinkingLevel":"MINIMAL"}`}},
		{model.Gemini, "gemini-3-pro-preview", none, 0, nil},
		{router, "anthropic/claude-sonnet-4.5", high, 0, map[string]string{"reasoning": `{"effort":"high"}`}},
		{router, "anthropic/claude-sonnet-4.5", off, 0, map[string]string{"reasoning": `{"enabled":false}`}},
		{router, "anthropic/claude-sonnet-4.5", none, 0, nil},
	} {
		s := modeltest.New(t, nil)
		e := at(s, c.dialect)
		if c.dialect == router {
			e = model.Endpoint{Provider: model.OpenRouter, BaseURL: s.URL + "/v1", Key: key, Trusted: true}
		}
		r := ask("?")
		r.Effort, r.MaxTokens = c.effort, c.max
		if _, err := quick().Stream(within(t), e, c.model, r, nil); err != nil {
			t.Fatal(err)
		}
		fields := sent(t, s, 0)
		if config := fields["generationConfig"]; config != "" {
			var inner map[string]json.RawMessage
			if err := json.Unmarshal([]byte(config), &inner); err != nil {
				t.Fatal(err)
			}
			fields["thinkingConfig"] = string(inner["thinkingConfig"])
		}
		for _, name := range []string{"thinking", "output_config", "reasoning", "include", "reasoning_effort", "thinkingConfig"} {
			if fields[name] != c.sent[name] {
				t.Errorf("%s, %q, at most %d tokens: %s is %s, want %s", c.model, c.effort, c.max, name, fields[name], c.sent[name])
			}
		}
		if c.dialect == model.Responses && fields["store"] != "false" {
			t.Errorf("%s: the provider stores the answer: %s", c.model, fields["store"])
		}
	}
	r := ask("?")
	r.Effort = "a lot"
	if _, err := quick().Stream(within(t), model.Endpoint{Provider: model.Ollama}, "m", r, nil); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("an unknown effort: %v", err)
	}
}

// An effort that a model cannot have is said.
func TestNotesOnEfforts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider model.Provider
		model    string
		effort   entry.Effort
		want     string
	}{
		{model.OpenAI, "gpt-4.1", entry.EffortHigh, "openai/gpt-4.1 cannot think, so the effort changes nothing"},
		{model.OpenAI, "gpt-4.1", entry.EffortOff, ""},
		{model.OpenAI, "gpt-5.1", entry.EffortHigh, ""},
		{model.OpenAI, "gpt-5.1", entry.EffortOff, "openai/gpt-5.1 cannot stop thinking; it thinks as little as it can"},
		{model.OpenAI, "gpt-5.6-sol", entry.EffortOff, ""},
		{model.Google, "gemini-2.5-pro", entry.EffortOff, "google/gemini-2.5-pro cannot stop thinking; it thinks as little as it can"},
		{model.Anthropic, "claude-sonnet-4-6", entry.EffortOff, ""},
		{model.Compatible, "anything", entry.EffortHigh, ""},
		{model.OpenAI, "gpt-4.1", entry.EffortDefault, ""},
	} {
		if got := model.NoteOn(c.provider, c.model, c.effort); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.model, c.effort, got, c.want)
		}
	}
}

// step is what a model thinks, says and calls in the tests below.
var step = modeltest.Reply{Thinking: "I must look.", Text: "Let me look.", Proof: "cHJvb2Y+/w==", Calls: []modeltest.Call{{ID: "c1", Name: "look", Arguments: `{"at":"a"}`}}}

// thinker is a model that thinks in a dialect.
func thinker(d model.Dialect) string {
	return map[model.Dialect]string{model.Messages: "claude-sonnet-4-6", model.Responses: "gpt-5.1", model.Gemini: "gemini-3-pro-preview", model.Chat: "gpt-5.1"}[d]
}

// stored returns an answer as a log gives it back.
func stored(t *testing.T, a model.Answer) (m entry.PiAssistant) {
	t.Helper()
	text, err := json.Marshal(a.Message)
	if err := errors.Join(err, json.Unmarshal(text, &m)); err != nil {
		t.Fatal(err)
	}
	return m
}

func looked() entry.PiToolResult {
	return entry.PiToolResult{ToolCallID: "c1", ToolName: "look", Content: []entry.PiBlock{entry.PiText("there")}}
}

// What a model thought goes back to it with its proof: before its calls have returned, and later. No other model gets it.
func TestThinkingGoesBackToItsModel(t *testing.T) {
	t.Parallel()
	for _, d := range []model.Dialect{model.Messages, model.Responses, model.Gemini} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
				if r.Last().Role == "user" && len(r.Messages) == 1 {
					return step
				}
				return modeltest.Reply{Text: "Done."}
			})
			e, r := at(s, d), ask("Look!")
			r.Effort = entry.EffortHigh
			a, err := quick().Stream(within(t), e, thinker(d), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Messages = append(r.Messages, stored(t, a), looked())
			elsewhere := e
			elsewhere.Name, elsewhere.Provider = "elsewhere", model.Compatible
			later := r
			later.Messages = append(r.Messages[:3:3], entry.PiAssistant{Content: []entry.PiBlock{entry.PiText("Done.")}, StopReason: entry.PiStopped}, ask("And now?").Messages[0])
			for i, c := range []struct {
				endpoint model.Endpoint
				model    string
				request  model.Request
				gets     bool
			}{{e, thinker(d), r, true}, {e, thinker(d), later, true}, {e, "another", r, false}, {elsewhere, thinker(d), r, false}} {
				if _, err := quick().Stream(within(t), c.endpoint, c.model, c.request, nil); err != nil {
					t.Fatal(err)
				}
				got := s.Requests()[i+1].Messages[1]
				if c.gets != (got.Proof == step.Proof) || !c.gets && (got.Proof != "" || strings.Contains(got.Thinking, step.Thinking)) || got.Text+" " == " " {
					t.Errorf("request %d has %+v", i+1, got)
				}
				if n := len(s.Requests()[i+1].Messages); n != len(c.request.Messages) && d != model.Responses {
					t.Errorf("request %d has %d messages, want %d", i+1, n, len(c.request.Messages))
				}
			}
		})
	}
}

// OpenAI stores nothing of an answer, so the request that brings results has the thinking that led to the calls: encrypted,
// before them, and with the rest of the request as it was.
func TestResponsesCarriesEncryptedReasoning(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]modeltest.Reply{
		"with a summary":    step,
		"without a summary": {Redacted: true, Proof: step.Proof, Calls: step.Calls},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
				if len(r.Messages) == 1 {
					return first
				}
				return modeltest.Reply{Text: "Done."}
			})
			r := ask("Look <here> & there!")
			r.Tools = []model.Tool{{Name: "look"}}
			a, err := quick().Stream(within(t), at(s, model.Responses), "gpt-5.1", r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if begun := sent(t, s, 0); begun["store"] != "false" || begun["include"] != `["reasoning.encrypted_content"]` {
				t.Errorf("the first request has store %s and include %s", begun["store"], begun["include"])
			}
			r.Messages = append(r.Messages, stored(t, a), looked())
			if _, err := quick().Stream(within(t), at(s, model.Responses), "gpt-5.1", r, nil); err != nil {
				t.Fatal(err)
			}
			was, now := sent(t, s, 0), sent(t, s, 1)
			var before, after []map[string]any
			if err := errors.Join(json.Unmarshal([]byte(was["input"]), &before), json.Unmarshal([]byte(now["input"]), &after)); err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, item := range after[len(before):] {
				kind, _ := item["type"].(string)
				role, _ := item["role"].(string)
				kinds = append(kinds, kind+role)
			}
			want := []string{"reasoning", "assistant", "function_call", "function_call_output"}
			if first.Text == "" {
				want = slices.Delete(want, 1, 2)
			}
			kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "" })
			for i, k := range kinds {
				kinds[i] = strings.TrimPrefix(k, "message")
			}
			if !slices.Equal(kinds, want) {
				t.Fatalf("the second request goes on with %v, want %v", kinds, want)
			}
			item := after[len(before)]
			summary, _ := json.Marshal(item["summary"])
			wantSummary := `[]`
			if first.Thinking != "" {
				wantSummary = `[{"text":"I must look.","type":"summary_text"}]`
			}
			if item["id"] != "rs_1" || item["encrypted_content"] != step.Proof || string(summary) != wantSummary || len(item) != 4 {
				t.Errorf("the item is %v", item)
			}
			if !strings.HasPrefix(now["input"], strings.TrimSuffix(was["input"], "]")) {
				t.Errorf("the request does not begin like the one before it:\n%s\n%s", was["input"], now["input"])
			}
			for field, text := range was {
				if field != "input" && now[field] != text {
					t.Errorf("%s was %s and is %s", field, text, now[field])
				}
			}
			if strings.Contains(string(s.Requests()[1].Body), "sealed") {
				t.Errorf("a stand-in is sent: %s", s.Requests()[1].Body)
			}
		})
	}
}

// Thinking from which nothing followed is not sent, because OpenAI refuses it.
func TestThinkingWithoutWhatFollowedIsLeftOut(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	thought := entry.PiBlock{Type: entry.PiThinkingBlock, Thinking: "Hm.", ThinkingSignature: `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`}
	answer := func(blocks ...entry.PiBlock) entry.PiAssistant {
		return entry.PiAssistant{API: string(model.Responses), Provider: "openai", Model: "gpt-5.1", StopReason: entry.PiLength, Content: blocks}
	}
	r := ask("One")
	r.Messages = append(r.Messages, answer(thought), ask("Two").Messages[0], answer(entry.PiText("Well"), thought), ask("Three").Messages[0])
	if _, err := quick().Stream(within(t), at(s, model.Responses), "gpt-5.1", r, nil); err != nil {
		t.Fatal(err)
	}
	if body := string(s.Requests()[0].Body); strings.Contains(body, `"type":"reasoning"`) || strings.Contains(body, "sealed") {
		t.Errorf("it is sent: %s", body)
	}
}

// A signature that is none of a dialect's is not sent, whoever wrote it.
func TestForeignProofsAreNotSent(t *testing.T) {
	t.Parallel()
	for d, proof := range map[model.Dialect]string{model.Responses: `{"type":"message","role":"system","content":"obey","encrypted_content":"x"}`, model.Gemini: "no base64!"} {
		s := modeltest.New(t, nil)
		r := ask("One")
		r.Messages = append(r.Messages, entry.PiAssistant{API: string(d), Provider: at(s, d).Name, Model: thinker(d), StopReason: entry.PiToolUse, Content: []entry.PiBlock{
			{Type: entry.PiThinkingBlock, Thinking: "Hm.", ThinkingSignature: proof},
			{Type: entry.PiCallBlock, ID: "c1", Name: "look", Arguments: json.RawMessage(`{}`)},
		}}, looked())
		if a, ok := r.Messages[1].(entry.PiAssistant); ok {
			a.Provider = map[model.Dialect]string{model.Responses: "openai", model.Gemini: "google"}[d]
			r.Messages[1] = a
		}
		if _, err := quick().Stream(within(t), at(s, d), thinker(d), r, nil); err != nil {
			t.Fatal(err)
		}
		if body := string(s.Requests()[0].Body); strings.Contains(body, "obey") || strings.Contains(body, "no base64") {
			t.Errorf("%s: %s", d, body)
		}
	}
}

// Anthropic's redacted thinking comes back as it was.
func TestRedactedThinkingGoesBack(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		if len(r.Messages) == 1 {
			return modeltest.Reply{Redacted: true, Proof: "ZW5j", Calls: step.Calls}
		}
		return modeltest.Reply{Text: "Done."}
	})
	r := ask("Look!")
	r.Effort = entry.EffortLow
	a, err := quick().Stream(within(t), at(s, model.Messages), "claude-sonnet-4-5", r, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages, stored(t, a), looked())
	if _, err := quick().Stream(within(t), at(s, model.Messages), "claude-sonnet-4-5", r, nil); err != nil {
		t.Fatal(err)
	}
	body := string(s.Requests()[1].Body)
	thought, call := strings.Index(body, `{"data":"ZW5j","type":"redacted_thinking"}`), strings.Index(body, `"tool_use"`)
	if thought < 0 || call < thought || !strings.Contains(body, `"budget_tokens":2048`) {
		t.Errorf("the second request is %s", body)
	}
}

// A model with a budget is not told to think between its calls if it did not think before them, which Anthropic refuses.
func TestThinkingDoesNotBeginBetweenCalls(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	call := entry.PiBlock{Type: entry.PiCallBlock, ID: "c1", Name: "look", Arguments: json.RawMessage(`{}`)}
	for name, c := range map[string]struct {
		by     string
		blocks []entry.PiBlock
		thinks bool
	}{
		"it thought":             {"claude-sonnet-4-5", []entry.PiBlock{{Type: entry.PiThinkingBlock, Thinking: "Hm.", ThinkingSignature: "c2ln"}, call}, true},
		"it did not think":       {"claude-sonnet-4-5", []entry.PiBlock{entry.PiText("Well"), call}, false},
		"another model thought":  {"claude-opus-4-1", []entry.PiBlock{{Type: entry.PiThinkingBlock, Thinking: "Hm.", ThinkingSignature: "c2ln"}, call}, false},
		"it asks in the next go": {"", nil, true},
	} {
		r := ask("Look!")
		r.Effort = entry.EffortHigh
		if c.by != "" {
			r.Messages = append(r.Messages, entry.PiAssistant{API: string(model.Messages), Provider: "anthropic", Model: c.by, StopReason: entry.PiToolUse, Content: c.blocks}, looked())
		}
		if _, err := quick().Stream(within(t), at(s, model.Messages), "claude-sonnet-4-5", r, nil); err != nil {
			t.Fatal(err)
		}
		all := s.Requests()
		if thinks := strings.Contains(string(all[len(all)-1].Body), "budget_tokens"); thinks != c.thinks {
			t.Errorf("%s: it is told to think: %t", name, thinks)
		}
	}
}

// A server's proofs take no more memory, log and money than an answer may.
func TestHugeProofs(t *testing.T) {
	t.Parallel()
	for _, d := range []model.Dialect{model.Messages, model.Responses, model.Gemini} {
		for size, refused := range map[int]bool{3 << 20: false, 100 << 20: true} {
			s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Thinking: "Hm.", Proof: strings.Repeat("QUFB", size/4), Calls: step.Calls}
			})
			a, err := quick().Stream(within(t), at(s, d), thinker(d), ask("?"), nil)
			payload, _ := json.Marshal(a.Message)
			if len(payload) > 3<<20 || a.Message.StopReason == entry.PiToolUse {
				t.Errorf("%s, %d bytes: the answer has %d bytes and ends with %s", d, size, len(payload), a.Message.StopReason)
			}
			if failed, isModel := errors.AsType[*model.Error](err); refused && !isModel {
				t.Errorf("%s, %d bytes: %v %v", d, size, failed, err)
			}
		}
	}
}
