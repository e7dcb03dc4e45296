package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

func TestParseRef(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]model.Ref{
		"anthropic/claude-sonnet-4-6":         {Endpoint: "anthropic", Model: "claude-sonnet-4-6"},
		" openrouter/qwen/qwen3-coder:free\n": {Endpoint: "openrouter", Model: "qwen/qwen3-coder:free"},
		"ollama/qwen3:8b":                     {Endpoint: "ollama", Model: "qwen3:8b"},
		"mine/fake-tool~read":                 {Endpoint: "mine", Model: "fake-tool~read"},
	} {
		ref, err := model.ParseRef(text, "mine")
		if err != nil || ref != want || ref.String() != strings.TrimSpace(text) {
			t.Errorf("%q is %+v (%v)", text, ref, err)
		}
	}
	for _, text := range []string{"", "gpt-5", "/gpt-5", "openai/", "elsewhere/x", "openai/a b", "openai/a\nb", "openai/" + strings.Repeat("x", 300), "OpenAI/gpt-5"} {
		_, err := model.ParseRef(text)
		if fault.CodeOf(err) != fault.Invalid || fault.From(err).Next == "" || len(err.Error()) > 500 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestEndpointCheck(t *testing.T) {
	t.Parallel()
	at := func(url string, trusted bool) model.Endpoint {
		return model.Endpoint{Provider: model.Compatible, Name: "mine", BaseURL: url, Trusted: trusted}
	}
	for name, e := range map[string]model.Endpoint{
		"a provider's own":   {Provider: model.Anthropic, Key: key},
		"Ollama's own":       {Provider: model.Ollama},
		"one of a member":    at("https://models.example.com/v1", false),
		"one of the machine": at("http://127.0.0.1:8080/v1", true),
		"one of the network": at("http://10.0.0.7/v1", true),
	} {
		if err := e.Check(); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
	for name, e := range map[string]model.Endpoint{
		"no provider":         {},
		"no address":          at("", true),
		"a file":              at("file:///etc/passwd", true),
		"no scheme":           at("models.example.com", true),
		"a user":              at("https://a:b@models.example.com", true),
		"a query":             at("https://models.example.com?key=1", true),
		"AWS's metadata":      at("http://169.254.169.254/latest", true),
		"the same, in IPv6":   at("http://[fd00:ec2::254]/", true),
		"the same, mapped":    at("http://[::ffff:169.254.169.254]/", true),
		"Google's metadata":   at("http://metadata.google.internal./", true),
		"a member's loopback": at("http://127.0.0.1:5432", false),
		"the same by name":    at("http://localhost:5432", false),
		"a member's network":  at("http://192.168.1.1", false),
		"a key of two lines":  {Provider: model.OpenAI, Key: "sk-1\nsk-2"},
		"no name":             {Provider: model.Compatible, BaseURL: "https://models.example.com"},
		"a provider's name":   {Provider: model.Compatible, Name: "openai", BaseURL: "https://models.example.com"},
	} {
		err := e.Check()
		if fault.CodeOf(err) != fault.Invalid || fault.From(err).Next == "" {
			t.Errorf("%s: %v", name, err)
		}
		if _, callErr := quick().Stream(t.Context(), e, "m", ask("?"), nil); fault.CodeOf(callErr) != fault.Invalid {
			t.Errorf("%s is called: %v", name, callErr)
		}
	}
	secret := model.Endpoint{Provider: model.OpenAI, Key: key}
	asJSON, err := json.Marshal(secret)
	if shown := fmt.Sprintf("%v %+v %#v %s %s", secret, secret, secret, secret, asJSON); err != nil || strings.Contains(shown, key) {
		t.Errorf("the key is shown: %s", shown)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	const each = model.Dollar / 1e6 // for one token, of a dollar for a million
	info := model.Lookup(model.Anthropic, "claude-sonnet-4-5-20250929")
	if !info.Known || info.ContextWindow < 100_000 || !info.Thinks || info.Price == nil || *info.Price != (model.Price{Input: 3 * each, Output: 15 * each, CacheRead: each * 3 / 10, CacheWrite: each * 15 / 4}) {
		t.Errorf("Claude Sonnet 4.5 is %+v, %+v", info, info.Price)
	}
	if other := model.Lookup(model.Anthropic, "claude-sonnet-4-5"); other.Price == nil || *other.Price != *info.Price {
		t.Errorf("without its date it is %+v", other)
	}
	// Some entries have the price of reading the cache where others have that of writing it.
	for _, id := range []string{"gpt-5.4", "gpt-5.1"} {
		if p := model.Lookup(model.OpenAI, id).Price; p == nil || p.CacheRead != p.Input/10 || p.CacheWrite != p.Input {
			t.Errorf("%s costs %+v", id, p)
		}
	}
	unknown := model.Lookup(model.OpenAI, "gpt-unheard-of")
	if unknown.Known || unknown.Price != nil || unknown.ContextWindow != model.DefaultContextWindow {
		t.Errorf("an unknown model is %+v", unknown)
	}
	if p := model.Lookup(model.Ollama, "qwen3:8b").Price; p == nil || *p != (model.Price{}) {
		t.Errorf("Ollama costs %+v", p)
	}
	for _, p := range []model.Provider{model.Anthropic, model.OpenAI, model.Google, model.OpenRouter} {
		large, small := model.DefaultModels(p)
		if !model.Lookup(p, large).Known || !model.Lookup(p, small).Known {
			t.Errorf("%s recommends %q and %q, which the catalog does not have", p, large, small)
		}
	}
}

func TestMoney(t *testing.T) {
	t.Parallel()
	for m, want := range map[model.Money]string{0: "$0.00", model.Dollar: "$1.00", model.Dollar * 123 / 10: "$12.30", model.Dollar * 2 / 100: "$0.020", model.Dollar * 34 / 1e6: "$0.000034"} {
		if m.String() != want {
			t.Errorf("%d is %s, want %s", m, m, want)
		}
	}
	if model.Money(1).Micros() != 1 || model.Money(0).Micros() != 0 || model.Dollar.Micros() != 1e6 {
		t.Error("micros are not rounded up")
	}
}

func TestEstimates(t *testing.T) {
	t.Parallel()
	english := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100) // 1,001 tokens
	if n := model.EstimateTokens(english); n < 1000 || n > 1500 {
		t.Errorf("English has %d", n)
	}
	if n := model.EstimateTokens("你好，世界"); n != 5 {
		t.Errorf("Chinese has %d", n)
	}
	r := ask(english)
	before := r.Estimate()
	r.Tools = []model.Tool{{Name: "read", Description: english}}
	r.Messages = append(r.Messages, entry.PiAssistant{Content: []entry.PiBlock{entry.PiText(english)}}, entry.PiToolResult{Content: []entry.PiBlock{entry.PiText(english)}})
	if after := r.Estimate(); after < 3*before {
		t.Errorf("tools, answers and results are not counted: %d, before %d", after, before)
	}
}

// A schema of 1 KB can refer to itself so that checking one value takes 2^40 steps. It is applied as the provider is sent
// it, which is bounded.
func TestAHostileSchemaIsCheckedInBoundedTime(t *testing.T) {
	for name, word := range map[string]string{"a reference": "$ref", "a dynamic reference": "$dynamicRef"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var defs strings.Builder
			for i := range 40 {
				fmt.Fprintf(&defs, `"d%d":{"anyOf":[{%q:"#/$defs/d%d"},{%q:"#/$defs/d%d"}]},`, i, word, i+1, word, i+1)
			}
			schema := fmt.Sprintf(`{"type":"object","properties":{"a":{%q:"#/$defs/d0"}},"$defs":{%s"d40":{"type":"string"}}}`, word, defs.String())
			done := make(chan error, 1)
			go func() {
				done <- model.CheckArguments(model.Tool{Name: "read", Schema: json.RawMessage(schema)}, json.RawMessage(`{"a":1}`))
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Error("checking one value has not ended")
			}
		})
	}
	many := `{"a":[` + strings.Repeat("1,", 1_000_000) + `1]}`
	wide := `{"type":"object","properties":{"a":{"items":{"allOf":[` + strings.Repeat(`{"type":"number"},`, 1000) + `{"type":"number"}]}}}}`
	if err := model.CheckArguments(model.Tool{Name: "read", Schema: json.RawMessage(wide)}, json.RawMessage(many)); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a million values for a schema of a thousand parts: %v", err)
	}
}

func TestCheckArguments(t *testing.T) {
	t.Parallel()
	tool := model.Tool{Name: "run_command", Schema: json.RawMessage(`{"type":"object","required":["command"],"additionalProperties":false,"properties":{
		"command":{"type":"string","minLength":1},"timeout":{"type":"integer","minimum":1},"env":{"type":"object","additionalProperties":{"type":"string"}},"as":{"$ref":"#/$defs/user"}},
		"$defs":{"user":{"enum":["root","me"]}}}`)}
	for _, arguments := range []string{`{"command":"ls"}`, `{"command":"ls","timeout":5,"env":{"A":"b"},"as":"me"}`} {
		if err := model.CheckArguments(tool, json.RawMessage(arguments)); err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	for arguments, names := range map[string]string{
		``: "Required property 'command' is missing", `{}`: "command", `{"command":5,"timeout":0}`: "command: Value is integer but should be string; timeout: 0 should be at least 1", `{"command":"ls","timeout":0}`: "timeout", `{"command":"ls","env":{"A":1}}`: "env.A: Value is integer",
		`{"command":"ls","cmd":"x"}`: "cmd: there is no such argument", `{"command":"ls","as":"you"}`: "as: Value you should be one of", `[]`: "object", `null`: "object", `"{\"command\": \"l"`: "not JSON", `{"command"`: "not JSON",
	} {
		err := model.CheckArguments(tool, json.RawMessage(arguments))
		if fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "null but") || !strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), "run_command") || len(err.Error()) > 1500 {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if err := model.CheckArguments(model.Tool{Name: "now"}, nil); err != nil {
		t.Errorf("a tool without arguments: %v", err)
	}
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	model.CheckArguments(model.Tool{Name: "far", Schema: json.RawMessage(`{"$ref":"` + server.URL + `/schema"}`)}, json.RawMessage(`{}`)) //nolint:errcheck // either is fine
	if asked {
		t.Error("a schema made the server fetch another one")
	}
}

// env is an environment of variables.
type env map[string]string

func (e env) get(name string) string { return e[name] }

func none(context.Context, model.Endpoint) (model.Listing, error) {
	return model.Listing{}, errors.New("connection refused")
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	t.Run("nothing", func(t *testing.T) {
		found := model.FromEnvironment(t.Context(), env{}.get, none)
		if len(found.Found) != 0 || found.Default.String() != "" || found.Problem != nil {
			t.Errorf("%+v", found)
		}
	})
	t.Run("keys", func(t *testing.T) {
		found := model.FromEnvironment(t.Context(), env{"OPENAI_API_KEY": key + "\n", "ANTHROPIC_API_KEY": key, "GEMINI_API_KEY": key, "OPENROUTER_API_KEY": key}.get, none)
		var names []string
		for _, f := range found.Found {
			names = append(names, f.Endpoint.Name)
			if f.Problem != nil || f.Endpoint.Key != key || f.Default == "" || !strings.HasSuffix(f.Source, "_API_KEY") {
				t.Errorf("%+v", f)
			}
		}
		if !slices.Equal(names, []string{"anthropic", "openai", "openrouter", "google"}) || found.Default.Endpoint != "anthropic" {
			t.Errorf("found are %v, the default is %s", names, found.Default)
		}
		if shown := fmt.Sprintf("%v %+v %#v", found, found, found); strings.Contains(shown, key) {
			t.Errorf("the keys are shown: %s", shown)
		}
	})
	t.Run("base URLs", func(t *testing.T) {
		s := modeltest.New(t, nil)
		found := model.FromEnvironment(t.Context(), env{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": s.URL, "OPENAI_BASE_URL": s.URL + "/v1/", "OLLAMA_HOST": s.URL}.get, new(model.Client).Models)
		if len(found.Found) != 3 {
			t.Fatalf("%+v", found)
		}
		for _, f := range found.Found {
			if f.Problem != nil || f.Endpoint.Provider != model.Anthropic && f.Default != "fake-answer" {
				t.Errorf("%+v", f)
			}
			if a, err := quick().Stream(within(t), f.Endpoint, f.Default, ask("Hi"), nil); err != nil || a.Message.Text() != "Hi" {
				t.Errorf("%s: %+v (%v)", f.Source, a.Message, err)
			}
		}
	})
	t.Run("an address that is wrong is a problem of that endpoint only", func(t *testing.T) {
		found := model.FromEnvironment(t.Context(), env{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": "http://169.254.169.254", "OPENAI_API_KEY": key, "OLLAMA_HOST": "gpu"}.get, none)
		if len(found.Found) != 3 || found.Found[0].Problem == nil || found.Found[2].Problem == nil || found.Default.Endpoint != "openai" {
			t.Errorf("%+v", found)
		}
		if found.Found[2].Endpoint.BaseURL != "http://gpu:11434/v1" {
			t.Errorf("Ollama is at %s", found.Found[2].Endpoint.BaseURL)
		}
	})
	t.Run("an Ollama on this machine", func(t *testing.T) {
		var asked string
		found := model.FromEnvironment(t.Context(), env{}.get, func(_ context.Context, e model.Endpoint) (model.Listing, error) {
			asked = e.BaseURL
			return model.Listing{Models: []string{"nomic-embed-text:latest", "qwen3:8b"}}, nil
		})
		if asked != "http://127.0.0.1:11434/v1" || found.Default.String() != "ollama/qwen3:8b" {
			t.Errorf("asked is %s, found %+v", asked, found)
		}
	})
	t.Run("ARBE_MODEL", func(t *testing.T) {
		chosen := env{"ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": key, "ARBE_MODEL": "openai/gpt-5.1"}
		if found := model.FromEnvironment(t.Context(), chosen.get, none); found.Default.String() != "openai/gpt-5.1" || found.Problem != nil {
			t.Errorf("%+v", found)
		}
		for _, wrong := range []string{"gpt-5.1", "google/gemini-3-flash-preview"} {
			chosen["ARBE_MODEL"] = wrong
			if found := model.FromEnvironment(t.Context(), chosen.get, none); found.Problem == nil {
				t.Errorf("%s: %+v", wrong, found)
			}
		}
	})
}

// gemini streams what Google's API does: each chunk has the numbers of all before it, and a proof of thinking that is
// bytes and belongs to a call.
const gemini = `data: {"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"totalTokenCount":110,"thoughtsTokenCount":10},"responseId":"r1"}

data: {"candidates":[{"content":{"parts":[{"text":"Reading."}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":5,"totalTokenCount":115,"thoughtsTokenCount":10},"responseId":"r1"}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"read","args":{"path":"a"}},"thoughtSignature":"/wD+"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":20,"totalTokenCount":130,"thoughtsTokenCount":10},"responseId":"r1"}

`

func TestGoogle(t *testing.T) {
	t.Parallel()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-Goog-Api-Key") != key || !strings.HasSuffix(r.URL.Path, "/models/gemini-3-flash-preview:streamGenerateContent") {
			t.Errorf("it is asked at %s with %v (%v)", r.URL, r.Header, err)
		}
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, gemini) //nolint:errcheck // the client went
	}))
	t.Cleanup(server.Close)
	e := model.Endpoint{Provider: model.Google, BaseURL: server.URL, Key: key, Trusted: true}
	r := ask("Read a")
	r.Tools = []model.Tool{{Name: "read", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)}}
	a, err := quick().Stream(within(t), e, "gemini-3-flash-preview", r, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := a.Message.Calls()
	if a.Message.StopReason != entry.PiToolUse || a.Message.Text() != "Reading." || len(calls) != 1 || string(calls[0].Arguments) != `{"path":"a"}` {
		t.Errorf("the answer is %+v", a.Message)
	}
	if a.Usage != (model.Usage{Input: 60, Output: 30, CacheRead: 40}) {
		t.Errorf("it used %+v", a.Usage)
	}
	if !strings.Contains(bodies[0], `"required":["path"]`) {
		t.Errorf("the schema is not sent whole: %s", bodies[0])
	}
	stored, err := json.Marshal(a.Message)
	var again entry.PiAssistant
	if err := errors.Join(err, json.Unmarshal(stored, &again)); err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages, again, entry.PiToolResult{ToolCallID: calls[0].ID, ToolName: "read", Content: []entry.PiBlock{entry.PiText("hello")}})
	if _, err := quick().Stream(within(t), e, "gemini-3-flash-preview", r, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(bodies[1], `"thoughtSignature":"/wD+"`) || !strings.Contains(bodies[1], `"functionResponse"`) {
		t.Errorf("the proof of thinking is not sent back: %s", bodies[1])
	}
	var failed *model.Error
	if _, err := quick().Stream(within(t), e, "claude-sonnet-4-6", r, nil); !errors.As(err, &failed) || failed.Kind != model.UnknownModel {
		t.Errorf("a model of Anthropic's at Google: %v", err)
	}
}

func TestOpenRouter(t *testing.T) {
	t.Parallel()
	var path, authorization string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, authorization = r.URL.Path, r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `: OPENROUTER PROCESSING

data: {"id":"gen-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}

data: {"id":"gen-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}

data: {"id":"gen-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}],"usage":{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105,"cost":0.00123,"prompt_tokens_details":{"cached_tokens":30,"cache_write_tokens":20}}}

data: [DONE]

`) //nolint:errcheck // the client went
	}))
	t.Cleanup(server.Close)
	e := model.Endpoint{Provider: model.OpenRouter, BaseURL: server.URL + "/api/v1", Key: key, Trusted: true}
	a, err := quick().Stream(within(t), e, "some/model", ask("?"), nil)
	if err != nil || a.Message.Text() != "Hi" || path != "/api/v1/chat/completions" || authorization != "Bearer "+key {
		t.Fatalf("%+v (%v), asked at %s", a.Message, err, path)
	}
	if a.Usage != (model.Usage{Input: 50, Output: 5, CacheRead: 30, CacheWrite: 20}) || !a.CostKnown || a.Cost.Micros() != 1230 || !a.Message.Usage.Cost.TotalFromProvider {
		t.Errorf("it used %+v and cost %v", a.Usage, a.Cost)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, gemini) //nolint:errcheck // the client went
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := quick()
	for range 5 {
		if _, err := client.Stream(within(t), model.Endpoint{Provider: model.Google, BaseURL: server.URL, Key: key, Trusted: true}, "gemini-3-flash-preview", ask("?"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("5 calls made %d connections", n)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := modeltest.New(t, nil)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/v1/chat/completions", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	_, err := quick().Stream(within(t), model.Endpoint{Provider: model.OpenAI, BaseURL: server.URL, Key: key, Trusted: true}, "m", ask("?"), nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Kind != model.Unreachable || len(elsewhere.Requests()) != 0 {
		t.Errorf("%v, and %d requests went to another address", err, len(elsewhere.Requests()))
	}
}

func TestThinks(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"gpt-5": true, "gpt-4o": false, "gpt-5-of-tomorrow": true, "unheard-of": false} {
		if got := model.Thinks(model.OpenAI, id); got != want {
			t.Errorf("that %s thinks is %v, want %v", id, got, want)
		}
	}
}
