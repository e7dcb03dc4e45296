package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

func TestAnAgentAsksInEveryDialect(t *testing.T) {
	t.Parallel()
	for d, name := range priced {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{})
			res := b.send(d, name, "repeat me please", func(r *http.Request) {
				r.Header.Set("Cookie", "arbe_session=stolen")
				r.Header.Set("Connection", "X-Hop")
				r.Header.Set("X-Hop", "1")
				r.Header.Set("Anthropic-Beta", "a-beta")
				r.Header.Set("OpenAI-Organization", "another")
			})
			text, err := read(t, res)
			if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") || !strings.Contains(text, "repeat") {
				t.Fatalf("it answers %d %v: %q (%v)", res.StatusCode, res.Header, text, err)
			}
			asked := b.providers.Requests()[0]
			want := map[model.Dialect]string{model.Messages: anthropicKey, model.Gemini: googleKey}[d]
			if want == "" {
				want = openaiKey
			}
			if asked.Key != want || asked.Header.Get("Cookie") != "" || asked.Header.Get("X-Hop") != "" || asked.Header.Get("Anthropic-Beta") != "a-beta" ||
				asked.Header.Get("OpenAI-Organization") != "" || strings.Contains(fmt.Sprint(asked.Header), b.token) {
				t.Errorf("the provider got %v", asked.Header)
			}
			if _, body := request(d, name, "repeat me please"); string(asked.Body) != body {
				t.Errorf("the provider got %s", asked.Body)
			}
			u, last := b.usage(), b.last()
			_, id, _ := strings.Cut(name, "/")
			cost := model.Lookup(model.Provider(strings.Split(name, "/")[0]), id).Price.Of(model.Usage{Input: 100, Output: 20}).Micros()
			if u.Input != 100 || u.Output != 20 || u.CostMicros != cost || u.Calls != 1 || u.CostUnknown || !last.Well() || last.Stop != entry.PiStopped || last.Status != 200 || last.Model != name {
				t.Errorf("it used %+v, and ended as %+v; want a cost of %d", u, last, cost)
			}
			if micros, unknown := b.tree(); micros != cost || unknown {
				t.Errorf("the thread and all below it cost %d (%v), want %d", micros, unknown, cost)
			}
		})
	}
}

func TestAnAnswerIsForwardedAsItIsWritten(t *testing.T) {
	t.Parallel()
	for d, name := range priced {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			endpoint, _, _ := strings.Cut(name, "/")
			b := setup(t, options{})
			res := b.send(d, endpoint+"/fake-slow", "first second")
			lines := bufio.NewScanner(res.Body)
			for lines.Scan() && !strings.Contains(lines.Text(), "first") {
			}
			if !strings.Contains(lines.Text(), "first") { // the second is written only after this
				t.Fatalf("it ends with %q", lines.Text())
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			go func() {
				for b.providers.Step(ctx) == nil {
				}
			}()
			if rest, err := io.ReadAll(res.Body); err != nil || !lines.Scan() && !strings.Contains(string(rest), "second") {
				t.Errorf("it goes on with %q (%v)", rest, err)
			}
		})
	}
}

// An agent may send anything. Errors are in the form that the agent shows.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.providers.Offer("", "claude-sonnet-4-6", "gpt-4.1", "gemini-2.5-pro")
	remote := `{"model":"claude-sonnet-4-6","stream":true,"messages":[],`
	for name, c := range map[string]struct {
		dialect model.Dialect
		path    string
		body    string
		change  func(*http.Request)
		status  int
		says    string
	}{
		"no token":                    {model.Messages, "anthropic/v1/messages", "{}", func(r *http.Request) { r.Header.Del("X-Api-Key") }, 401, "authentication_error"},
		"a wrong token":               {model.Chat, "openai/v1/chat/completions", "{}", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401, "invalid_api_key"},
		"a cookie":                    {model.Chat, "openai/v1/chat/completions", "{}", func(r *http.Request) { r.Header.Set("Cookie", "arbe_session="+b.token); r.Header.Del("Authorization") }, 401, "no token"},
		"an unknown model":            {model.Messages, "anthropic/v1/messages", `{"model":"no-such","stream":true}`, nil, 404, "not_found_error"},
		"the same of OpenAI":          {model.Responses, "openai/v1/responses", `{"model":"no-such","stream":true}`, nil, 404, "model_not_found"},
		"the same of Google":          {model.Gemini, "google/v1beta/models/no-such:streamGenerateContent?alt=sse", `{}`, nil, 404, "NOT_FOUND"},
		"a provider without a key":    {model.Chat, "openrouter/v1/chat/completions", `{"model":"x/y"}`, nil, 404, "arbe secret set OPENROUTER_API_KEY"},
		"an unknown provider":         {model.Chat, "nobody/v1/chat/completions", `{"model":"x"}`, nil, 404, "no provider"},
		"another dialect":             {model.Messages, "openai/v1/messages", `{"model":"gpt-4.1"}`, nil, 404, "speaks openai-completions here"},
		"another path":                {model.Chat, "openai/v1/files", "{}", nil, 404, "no such path"},
		"a path that climbs":          {model.Chat, "openai/v1/../../../metrics", "{}", nil, 404, "no such path"},
		"a model that climbs":         {model.Gemini, "google/v1beta/models/../../x:generateContent", "{}", nil, 404, ""},
		"another method of Google's":  {model.Gemini, "google/v1beta/models/gemini-2.5-pro:delete", "{}", nil, 404, "no such path"},
		"another method":              {model.Chat, "openai/v1/chat/completions", "{}", func(r *http.Request) { r.Method = "DELETE" }, 405, "use POST"},
		"a stream that is an array":   {model.Gemini, "google/v1beta/models/gemini-2.5-pro:streamGenerateContent", "{}", nil, 400, "alt=sse"},
		"a body that is not JSON":     {model.Chat, "openai/v1/chat/completions", "{", nil, 400, "not a JSON object"},
		"text after the JSON":         {model.Chat, "openai/v1/chat/completions", `{"model":"gpt-4.1"} {}`, nil, 400, "not a JSON object"},
		"no model":                    {model.Chat, "openai/v1/chat/completions", `{"Model":"gpt-4.1"}`, nil, 400, "names no model"},
		"two models":                  {model.Chat, "openai/v1/chat/completions", `{"model":"gpt-4.1","mod\u0065l":"gpt-5"}`, nil, 400, "twice"},
		"a search by the provider":    {model.Messages, "anthropic/v1/messages", remote + `"tools":[{"name":"a"},{"type":"web_search_20250305","name":"web_search"}]}`, nil, 400, "web_search"},
		"servers of remote tools":     {model.Messages, "anthropic/v1/messages", remote + `"mcp_servers":[{"url":"https://evil.example"}]}`, nil, 400, "mcp_servers"},
		"a search by Google":          {model.Gemini, "google/v1beta/models/gemini-2.5-pro:generateContent", `{"tools":[{"googleSearch":{}}]}`, nil, 400, "googleSearch"},
		"an answer in the background": {model.Responses, "openai/v1/responses", `{"model":"gpt-4.1","background":true}`, nil, 400, "background"},
	} {
		t.Run(name, func(t *testing.T) {
			res := b.post(c.dialect, "/api/model/"+c.path, c.body, func(r *http.Request) {
				if c.change != nil {
					c.change(r)
				}
			})
			text, _ := read(t, res)
			if res.StatusCode != c.status || !strings.Contains(text, c.says) || !json.Valid([]byte(text)) {
				t.Errorf("it answers %d %s, want %d and %q", res.StatusCode, text, c.status, c.says)
			}
		})
	}
	if n := len(b.providers.Requests()); n != 0 {
		t.Errorf("the providers were asked %d times", n)
	}
	if u := b.usage(); u.Calls != 0 {
		t.Errorf("it used %+v", u)
	}
}

func TestTheModelsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.providers.Offer("", "claude-sonnet-4-6", "ft:secret")
	for path, want := range map[string]string{"anthropic/v1/models": `"id":"claude-sonnet-4-6"`, "google/v1beta/models": `"name":"models/claude-sonnet-4-6"`} {
		res := b.post(model.Messages, "/api/model/"+path, "", func(r *http.Request) { r.Method = "GET" })
		if text, _ := read(t, res); res.StatusCode != 200 || !strings.Contains(text, want) || strings.Contains(text, "ft:") {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}

// A provider's failure is forwarded with a status at which agents do the right thing.
func TestAProviderFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		says    string
		outcome gateway.Outcome
		of      int // the provider's status
	}{
		"fake-429~7":   {429, "rate", gateway.Refused, 429},
		"fake-500":     {500, "server", gateway.Refused, 500},
		"fake-401":     {400, "does not accept the key", gateway.Refused, 401},
		"fake-404":     {404, "model", gateway.Refused, 404},
		"fake-nomoney": {402, "quota", gateway.Refused, 429},
		"fake-cut~-1":  {502, "cannot be reached", gateway.Refused, 0},
		"fake-cut":     {200, "", gateway.Broken, 200},
		"fake-fail":    {200, "Overloaded", gateway.OK, 200},
		"fake-length":  {200, "hello", gateway.OK, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{})
			res := b.send(model.Responses, "openai/"+name, "hello there")
			text, err := read(t, res)
			if res.StatusCode != c.status || !strings.Contains(strings.ToLower(text), strings.ToLower(c.says)) || (err != nil) != (c.outcome == gateway.Broken) {
				t.Errorf("it answers %d %q (%v)", res.StatusCode, text, err)
			}
			if name == "fake-429~7" && res.Header.Get("Retry-After") != "7" {
				t.Errorf("its headers are %v", res.Header)
			}
			if strings.Contains(text, openaiKey) || strings.Contains(fmt.Sprint(res.Header), openaiKey) {
				t.Error("the agent sees the key")
			}
			last := b.last()
			if last == nil || last.Outcome != c.outcome || last.Status != c.of || last.Well() != (name == "fake-length") {
				t.Errorf("the call ended as %+v", last)
			}
			if name == "fake-length" && last.Stop != entry.PiLength || name == "fake-fail" && last.Stop != entry.PiError {
				t.Errorf("it stopped as %q", last.Stop)
			}
		})
	}
}

// The key is removed from a provider's error.
func TestAnErrorHasNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t, options{provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Location", "https://elsewhere.example")
		w.WriteHeader(422)
		fmt.Fprintf(w, `{"error":{"message":"your key %s is fine"}}`, r.Header.Get("X-Api-Key"))
	})})
	res := b.send(model.Messages, "anthropic/claude-x", "hello")
	text, _ := read(t, res)
	if res.StatusCode != 422 || strings.Contains(text, anthropicKey) || !strings.Contains(text, "your key") || res.Header.Get("Set-Cookie")+res.Header.Get("Location") != "" {
		t.Errorf("it answers %d %v %s", res.StatusCode, res.Header, text)
	}
}

// The key is only for one address.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t, options{provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})})
	res := b.send(model.Messages, "anthropic/claude-x", "hello")
	if text, _ := read(t, res); res.StatusCode != 400 || !strings.Contains(text, "moved to another address") {
		t.Errorf("it answers %d %s", res.StatusCode, text)
	}
}

func TestAnAnswerThatIsNotAStream(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/v1/messages":              `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":3,"cache_read_input_tokens":2}}`,
		"/v1/messages/count_tokens": `{"input_tokens":7}`,
		"/v1/chat/completions":      `{"id":"c","choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`,
	}
	b := setup(t, options{provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answers[r.URL.Path])
	})})
	for at, name := range map[string]string{"anthropic/v1/messages": "claude-x", "openai/v1/chat/completions": "gpt-x", "anthropic/v1/messages/count_tokens": "claude-x"} {
		res := b.post(model.Messages, "/api/model/"+at, fmt.Sprintf(`{"model":%q,"messages":[]}`, name))
		_, path, _ := strings.Cut(at, "/")
		if text, _ := read(t, res); res.StatusCode != 200 || text != answers["/"+path] {
			t.Errorf("%s: %d %s", at, res.StatusCode, text)
		}
		if strings.HasSuffix(at, "count_tokens") {
			continue
		}
		if last := b.last(); last.Stop != entry.PiToolUse || last.Outcome != gateway.OK {
			t.Errorf("%s ended as %+v", at, last)
		}
	}
	if u := b.usage(); u.Calls != 2 || u.Input != 14 || u.Output != 6 || u.CacheRead != 4 {
		t.Errorf("it used %+v", u)
	}
}

// Hostile answers are forwarded or cut, cost little memory, and are counted.
func TestAHostileProvider(t *testing.T) {
	t.Parallel()
	for d, name := range priced {
		endpoint, _, _ := strings.Cut(name, "/")
		var now modeltest.Reply
		var mu sync.Mutex
		b := setup(t, options{script: func(*modeltest.Request) modeltest.Reply {
			mu.Lock()
			defer mu.Unlock()
			return now
		}})
		dialect := map[model.Dialect]modeltest.Dialect{model.Messages: modeltest.Messages, model.Chat: modeltest.Chat, model.Responses: modeltest.Responses, model.Gemini: modeltest.Gemini}[d]
		calls := int64(0)
		for attack, reply := range modeltest.Hostile(dialect) {
			mu.Lock()
			now = reply
			mu.Unlock()
			res := b.send(d, endpoint+"/hostile", "hello")
			_, _ = io.CopyN(io.Discard, res.Body, 6<<20) // an endless answer would continue
			res.Body.Close()
			calls++
			if u := b.await(calls); u.Calls != calls {
				t.Errorf("%s, %s: %d calls are recorded", d, attack, u.Calls)
			}
		}
	}
}

func TestASilentProvider(t *testing.T) {
	t.Parallel()
	b := setup(t, options{begins: 50 * time.Millisecond})
	res := b.send(model.Messages, "anthropic/fake-silent", "a b")
	if text, _ := read(t, res); res.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "timeout_error") {
		t.Errorf("it answers %d %s", res.StatusCode, text)
	}
	b = setup(t, options{stalls: 50 * time.Millisecond}) // which may take longer to begin
	res = b.send(model.Messages, "anthropic/fake-slow", "a b")
	if _, err := read(t, res); err == nil {
		t.Error("a stalled answer ends without an error")
	}
	if last := b.last(); last.Outcome != gateway.Broken {
		t.Errorf("it ended as %+v", last)
	}
}

// Runs and turns share their limits: neither can spend what the other has spent.
func TestTheLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options
		says string
	}{
		"of the run":          {options{limits: turn.Limits{RunMicros: 1000}}, "run_usd"},
		"of the house":        {options{limits: turn.Limits{HouseMicros: 1000}}, "arbe house limit"},
		"of the thread":       {options{limits: turn.Limits{ThreadMicros: 1000}}, "arbe bot edit @pi"},
		"of the message":      {options{roots: turn.RootLimits{Micros: 500}}, "entry_usd"},
		"of the person":       {options{budget: turn.Budget{PersonMicros: 62_000}}, "person_usd_day"},
		"of the installation": {options{budget: turn.Budget{DayMicros: 62_000}}, "installation_usd_day"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.options)
			var statuses []int
			var text string
			for range 4 { // each costs 600 millionths of a dollar
				res := b.send(model.Messages, priced[model.Messages], "hello")
				text, _ = read(t, res)
				statuses = append(statuses, res.StatusCode)
			}
			if statuses[0] != 200 || statuses[3] != 402 || !strings.Contains(text, c.says) || !strings.Contains(text, "billing_error") {
				t.Errorf("they answer %v, at last with %s", statuses, text)
			}
			var used turn.Used
			must(t, b.db.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
				used, err = turn.UsedTodayTx(t.Context(), tx, b.house, "")
				return err
			}))
			if u := b.usage(); used.CostMicros != u.CostMicros || used.ChargedMicros != u.CostMicros || used.InstallationMicros != u.CostMicros || used.Calls != u.Calls {
				t.Errorf("the house used %+v today, and the run %+v", used, u)
			}
		})
	}
}

// Runs in several threads share the limit of their tree, and that of the person who asked for them. Each call costs 600 millionths
// of a dollar.
func TestThreadsShareTheirLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits turn.Limits
		// related and other relate a new thread to the first one, so that they share the limit or do not.
		related, other string
		says           string
	}{
		"above":         {turn.Limits{ThreadMicros: 1000}, "update threads set parent_thread_id = $2 where id = $1", "", "in those above and below it"},
		"below":         {turn.Limits{ThreadMicros: 1000}, "update threads set parent_thread_id = $1 where id = $2", "", "in those above and below it"},
		"of one person": {turn.Limits{MemberMicros: 1000}, "update threads set asked_by = $3 where id in ($1, $2)", "update threads set asked_by = $3 where id = $2", "arbe house limit --member"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, shares := range []bool{true, false} {
				b := setup(t, options{limits: c.limits})
				second := b.running("")
				relate := map[bool]string{true: c.related, false: c.other}[shares]
				if relate != "" { // each parameter needs a use
					must1(b.owner.Exec(t.Context(), relate+" and $1::text is not null and $2::text is not null and $3::uuid is not null", second, b.thread, b.person))(t)
				}
				ask := func(status int) string {
					t.Helper()
					res := b.send(model.Messages, priced[model.Messages], "hello")
					text, _ := read(t, res)
					if res.StatusCode != status {
						t.Errorf("it answers %d %s", res.StatusCode, text)
					}
					return text
				}
				ask(200)
				b.token = b.tokenOf(second)
				ask(200)
				if !shares {
					ask(200)
				} else if text := ask(402); !strings.Contains(text, c.says) {
					t.Errorf("it answers %s", text)
				}
			}
		})
	}
}

// When a run loses its permission, its call in progress ends too.
func TestARunThatEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	res := b.send(model.Messages, "anthropic/fake-slow", "a b c")
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	must1(b.owner.Exec(t.Context(), "update threads set status = 'cancelled', token_epoch = default where id = $1", b.thread))(t)
	if _, err := read(t, res); err == nil {
		t.Error("the answer continued to its end")
	}
	res = b.send(model.Messages, "anthropic/fake-answer", "hello")
	if text, _ := read(t, res); res.StatusCode != 401 && res.StatusCode != 403 {
		t.Errorf("after the run it answers %d %s", res.StatusCode, text)
	}
	b.await(1)
	if last := b.last(); last == nil || last.Outcome != gateway.Left {
		t.Errorf("the call ended as %+v", last)
	}
}

// An agent that asks for whole answers, and leaves before they begin, pays for the input.
func TestAnAgentLeavesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	b := setup(t, options{provider: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		leave()
		<-r.Context().Done()
	})})
	_, id, _ := strings.Cut(priced[model.Messages], "/")
	body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"messages":[{"role":"user","content":%q}]}`, id, strings.Repeat("hello ", 1000))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/api/model/anthropic/v1/messages", strings.NewReader(body))
	must(t, err)
	r.Header.Set("X-Api-Key", b.token)
	if res, err := http.DefaultTransport.RoundTrip(r); err == nil {
		t.Errorf("it answers %s", res.Status)
		res.Body.Close()
	}
	input := int64(len(body)) / 4
	cost := model.Lookup(model.Anthropic, id).Price.Of(model.Usage{Input: input}).Micros()
	if u := b.await(1); u.Input != input || u.Output != 0 || u.CostMicros != cost || cost == 0 || u.CostUnknown {
		t.Errorf("it used %+v, want a cost of %d", u, cost)
	}
	if last := b.last(); last == nil || last.Outcome != gateway.Left || last.Status != 0 {
		t.Errorf("the call ended as %+v", last)
	}
}

// A call that ends while the database restarts is recorded once the database is back, and only once.
func TestTheDatabaseRestartsWhileACallEnds(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(p *dbtest.Proxy) (back func()){
		"before the record": func(p *dbtest.Proxy) func() {
			refused := p.Refused()
			p.Shut(true)
			p.Cut("")
			return func() {
				<-refused
				p.Shut(false)
			}
		},
		"after the record": func(p *dbtest.Proxy) func() {
			lost := p.LoseCommit(nil)
			return func() { <-lost }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := make(chan struct{})
			b := setup(t, options{apart: true, script: func(*modeltest.Request) modeltest.Reply {
				return modeltest.Reply{Text: "first second", Before: func(part int) {
					if part == 2 {
						<-ends
					}
				}}
			}})
			res := b.send(model.Messages, priced[model.Messages], "hello")
			back := leave(b.proxy)
			close(ends)
			back()
			if text, err := read(t, res); err != nil || !strings.Contains(text, "second") {
				t.Errorf("it answers %q (%v)", text, err)
			}
			if last := b.last(); last == nil || !last.Well() {
				t.Errorf("the call ended as %+v", last)
			}
			var used turn.Used
			must(t, b.db.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
				used, err = turn.UsedTodayTx(t.Context(), tx, b.house, "")
				return err
			}))
			if u := b.usage(); u.Calls != 1 || u.CostMicros == 0 || used.CostMicros != u.CostMicros {
				t.Errorf("the run used %+v, and the house %+v", u, used)
			}
		})
	}
}

func TestTheConcurrentCallsOfAThread(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	var held []*http.Response
	for range 16 {
		held = append(held, b.send(model.Messages, "anthropic/fake-slow", "a b"))
	}
	res := b.send(model.Messages, "anthropic/fake-answer", "hello")
	if text, _ := read(t, res); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(text, "rate_limit_error") {
		t.Errorf("it answers %d %s", res.StatusCode, text)
	}
	for _, h := range held {
		h.Body.Close()
	}
}
