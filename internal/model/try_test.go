package model_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
)

// try gives a secret a value as the service does: it is tried first.
func (o of) try(t *testing.T, name, value string, skip bool) (model.Tried, error) {
	t.Helper()
	tried, err := o.TryKey(t.Context(), o.scope, name, value, skip)
	if err == nil {
		o.set(t, name, value)
	}
	return tried, err
}

func TestAKeyIsTriedWhenItIsSet(t *testing.T) {
	t.Parallel()
	for name, title := range map[string]string{"ANTHROPIC_API_KEY": "Anthropic", "OPENAI_API_KEY": "OpenAI", "OPENROUTER_API_KEY": "OpenRouter", "GEMINI_API_KEY": "Google"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := house(t, nil)
			o.providers.Offer("sk-good-0001", "large", "small")
			tried, err := o.try(t, name, "sk-good-0001", false)
			if err != nil || tried.String() != title+" accepts the key and lists 2 models." || tried.Models() != 2 {
				t.Fatalf("%q, %v", tried, err)
			}
			// The old key is revoked, and the new one is wrong: the old one stays, because only the provider knows why.
			o.providers.Offer("sk-good-0002", "large", "small")
			_, err = o.try(t, name, "sk-wrong-0003", false)
			said := fault.From(err)
			if said.Code != fault.Invalid || !strings.Contains(said.Message, "value: "+title+" does not accept the key: ") || !strings.Contains(said.Next, "nothing was changed") || strings.Contains(err.Error(), "0003") {
				t.Errorf("a wrong key: %v", err)
			}
			if values, err := o.secrets.Values(t.Context(), o.scope.House, name); err != nil || values[name] != "sk-good-0001" {
				t.Errorf("the key is %v, %v", values, err)
			}
			if tried, err := o.try(t, name, "sk-wrong-0003", true); err != nil || tried.String() != "It was not tried: as you asked." {
				t.Errorf("untried: %q, %v", tried, err)
			}
			if values, err := o.secrets.Values(t.Context(), o.scope.House, name); err != nil || values[name] != "sk-wrong-0003" {
				t.Errorf("the key is %v, %v", values, err)
			}
			if len(o.providers.Requests()) > 0 {
				t.Error("a model was asked, which costs")
			}
		})
	}
	t.Run("what is no key of models", func(t *testing.T) {
		t.Parallel()
		o := house(t, nil)
		if tried, err := o.try(t, "DEPLOY_KEY", "anything", false); err != nil || tried.String() != "" || o.providers.Asked() > 0 {
			t.Errorf("%q, %v", tried, err)
		}
	})
}

// asking is a [model.Asker] of functions.
type asking struct {
	models func(context.Context, model.Endpoint) (model.Listing, error)
	try    func(context.Context, model.Endpoint) (model.Trial, error)
}

func (a asking) Models(ctx context.Context, e model.Endpoint) (model.Listing, error) {
	return a.models(ctx, e)
}

func (a asking) Try(ctx context.Context, e model.Endpoint) (model.Trial, error) { return a.try(ctx, e) }

// served is a house whose own servers may be on this machine, and are really asked.
func served(t *testing.T) of {
	t.Helper()
	o := house(t, nil)
	o.Houses = model.NewHouses(o.db, o.secrets, model.NewInstallation(func(string) string { return "" }, none), new(model.Client))
	hosts, err := outbound.ParseHosts("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	o.PrivateHosts = hosts
	return o
}

// A provider that cannot be asked does not judge a key: nothing changes, and what to do is said.
func TestAKeyThatCannotBeTriedIsNotStored(t *testing.T) {
	t.Parallel()
	o := served(t)
	var refuse atomic.Int64
	e := answers(t, model.Chat, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if status := refuse.Load(); status != 0 {
			w.WriteHeader(int(status))
			fmt.Fprintf(w, `{"error":{"message":"no, %s"}}`, r.Header.Get("Authorization"))
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"large"}]}`)
	})
	if tried, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: e.BaseURL, Key: "sk-lab-first"}); err != nil || tried.String() != "lab accepts the key and lists 1 model." {
		t.Fatalf("%q, %v", tried, err)
	}
	for _, status := range []int64{429, 500, 503, 529, 401, 403} {
		refuse.Store(status)
		wants := map[bool]fault.Code{true: fault.Invalid, false: fault.Unavailable}[status == 401 || status == 403]
		for what, err := range map[string]error{
			"its secret": func() error {
				_, err := o.TryKey(t.Context(), o.scope, "MODEL_LAB_KEY", "sk-lab-second", false)
				return err
			}(),
			"the server": func() error {
				_, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: e.BaseURL, Key: "sk-lab-second"})
				return err
			}(),
		} {
			if said := fault.From(err); said.Code != wants || !strings.Contains(said.Message, "no, ") || !strings.Contains(said.Next, "nothing was changed") || strings.Contains(said.Detail(), "second") {
				t.Errorf("%d of %s: %v", status, what, err)
			}
			if o.key(t, "lab/large") != "sk-lab-first" {
				t.Fatalf("%d of %s changes the key", status, what)
			}
		}
		o = o.again(t)
	}
	if tried, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: e.BaseURL, Key: "sk-lab-second", Skip: true}); err != nil || tried.Not == "" || o.key(t, "lab/large") != "sk-lab-second" {
		t.Errorf("untried: %q, %v", tried, err)
	}
	t.Run("a server inside is not asked", func(t *testing.T) {
		o := o.again(t)
		o.PrivateHosts = outbound.Hosts{}
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "inside", BaseURL: e.BaseURL}); fault.CodeOf(err) != fault.Invalid {
			t.Error(err)
		}
	})
}

// again is the same house at another server, which remembers no trials.
func (o of) again(t *testing.T) of {
	hosts := o.PrivateHosts
	o.Houses = model.NewHouses(o.db, o.secrets, model.NewInstallation(func(string) string { return "" }, none), new(model.Client))
	o.PrivateHosts = hosts
	return o
}

// A key of a house's own server is tried there, wherever it is set, and at each server that has it.
func TestAKeyOfAServerIsTriedThere(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	o.providers.Offer("sk-lab-good", "large")
	tried, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: "https://lab.example/v1", Secret: "LAB_KEY"})
	if err != nil || tried.String() != "It was not tried: the house has no secret LAB_KEY yet." {
		t.Fatalf("%q, %v", tried, err)
	}
	if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "dock", BaseURL: "https://dock.example/anthropic", Secret: "LAB_KEY"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.try(t, "LAB_KEY", "sk-lab-wrong", false); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a wrong key: %v", err)
	}
	tried, err = o.try(t, "LAB_KEY", "sk-lab-good", false)
	if err != nil || tried.String() != "lab accepts the key and lists 1 model. dock accepts the key and lists 1 model." && tried.String() != "dock accepts the key and lists 1 model. lab accepts the key and lists 1 model." {
		t.Errorf("%q, %v", tried, err)
	}
	// The key that the house has is tried at another address.
	o.providers.Offer("sk-another", "large")
	if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: "https://moved.example/v1", Secret: "LAB_KEY"}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("at another address: %v", err)
	}
	if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "open", BaseURL: "https://open.example/v1"}); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "open wants one") {
		t.Errorf("without a key: %v", err)
	}
}

// TestNobodyTriesKeysInBulk: neither in one house, nor in many, nor with many people of a house.
func TestNobodyTriesKeysInBulk(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	o.providers.Offer("sk-good", "large")
	count := func(scope func(i int) db.Scope) (tried int) {
		for i := range 30 {
			if _, err := o.TryKey(t.Context(), scope(i), "OPENAI_API_KEY", fmt.Sprint("sk-", i), false); fault.CodeOf(err) != fault.Exhausted {
				tried++
			}
		}
		return tried
	}
	if n := count(func(int) db.Scope { return o.scope }); n > 12 {
		t.Errorf("%d of 30 keys are tried", n)
	}
	if n := count(func(i int) db.Scope {
		return db.Scope{House: o.scope.House, Agent: fmt.Sprintf("00000000-0000-0000-0000-%012d", i)}
	}); n > 2 {
		t.Errorf("%d of 30 keys are tried for others in the house", n)
	}
	if n := count(func(i int) db.Scope { return db.Scope{House: fmt.Sprint("house", i), Agent: o.scope.Agent} }); n > 2 {
		t.Errorf("%d of 30 keys are tried for other houses", n)
	}
	if n := o.providers.Asked(); n > 14 {
		t.Errorf("the provider is asked %d times", n)
	}
	if _, err := o.TryKey(t.Context(), o.scope, "OPENAI_API_KEY", "sk-any", true); err != nil {
		t.Errorf("a key that is not tried: %v", err)
	}
}

func TestABotTriesNoKey(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	var bot string
	if err := o.owner.QueryRow(t.Context(), "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text").Scan(&bot); err != nil {
		t.Fatal(err)
	}
	scope := db.Scope{House: o.scope.House, Agent: bot}
	if _, err := o.TryKey(t.Context(), scope, "OPENAI_API_KEY", "sk-any", false); fault.CodeOf(err) != fault.Forbidden {
		t.Error(err)
	}
	if _, err := o.SetEndpoint(t.Context(), scope, model.Server{Name: "lab", BaseURL: "https://lab.example/v1"}); fault.CodeOf(err) != fault.Forbidden {
		t.Error(err)
	}
	if o.providers.Asked() > 0 {
		t.Error("a provider was asked")
	}
}

func TestWhatAServerSpeaks(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	for _, c := range []struct {
		address string
		given   model.Dialect
		want    model.Dialect
	}{
		{"https://models.example.com/v1", "", model.Chat},
		{"https://models.example.com/v1", model.Responses, model.Responses},
		{"https://models.example.com/v1", "", model.Responses}, // as before, because it is the same server
		{"https://moved.example.com/v1", "", model.Chat},
		{"https://api.anthropic.com", "", model.Messages},
		{"https://api.anthropic.com/v1", "", model.Messages},
		{"https://api.deepseek.com/anthropic", "", model.Messages},
		{"https://api.minimax.io/anthropic/v1/", "", model.Messages},
		{"https://api.openai.com/v1", "", model.Responses},
		{"https://generativelanguage.googleapis.com", "", model.Gemini},
		{"https://generativelanguage.googleapis.com/v1beta/openai/", "", model.Chat},
		{"https://anthropic.example.com/v1", "", model.Chat},
	} {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: c.address, Dialect: c.given, Skip: true}); err != nil {
			t.Fatal(err)
		}
		if e, _, err := o.Resolve(t.Context(), o.scope.House, "lab/large"); err != nil || e.Dialect != c.want {
			t.Errorf("%s as %q speaks %s, %v", c.address, c.given, e.Dialect, err)
		}
	}
	if _, err := model.ParseDialect("morse"); fault.CodeOf(err) != fault.Invalid {
		t.Error(err)
	}
}

func TestAModelThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	o.providers.Offer("", "claude-sonnet-4-6", "claude-opus-4-6", "claude-haiku-4-5-20251001")
	o.set(t, "ANTHROPIC_API_KEY", "sk-ant-any")
	for _, good := range []string{"anthropic/claude-sonnet-4-6", "anthropic/claude-haiku-4-5", "anthropic/claude-haiku-4-5-latest", "anthropic/claude-haiku-4-5-20251001"} {
		if ref, unverified, err := o.CheckModel(t.Context(), o.scope.House, good); err != nil || unverified != "" || ref.String() != good {
			t.Errorf("%s: %v, %q, %v", good, ref, unverified, err)
		}
	}
	_, _, err := o.CheckModel(t.Context(), o.scope.House, "anthropic/claud-sonet-4-6")
	if said := fault.From(err); said.Code != fault.Invalid || said.Message != `model: Anthropic has no model "claud-sonet-4-6" for this key` || !strings.HasPrefix(said.Next, "use claude-sonnet-4-6") {
		t.Errorf("%v", err)
	}
	m, err := o.SetFallbacks(t.Context(), o.scope, []string{"anthropic/claude-opus-4-6", "anthropic/nothing"}, false)
	if fault.CodeOf(err) != fault.Invalid {
		t.Errorf("%+v, %v", m, err)
	}
	if _, _, err := o.SetDefault(t.Context(), o.scope, "anthropic/nothing", false); fault.CodeOf(err) != fault.Invalid {
		t.Error(err)
	}
	if _, unverified, err := o.SetDefault(t.Context(), o.scope, "anthropic/nothing", true); err != nil || unverified == "" {
		t.Errorf("unchecked: %q, %v", unverified, err)
	}
	if _, _, err := o.SetDefault(t.Context(), o.scope, "anthropic/nothing", false); err != nil {
		t.Errorf("what is set already: %v", err)
	}
	if m, err := o.SetFallbacks(t.Context(), o.scope, []string{"anthropic/claude-opus-4-6", "openai/gpt-5"}, false); err != nil || m.Problem == nil || m.Unverified == "" {
		t.Errorf("without a key: %+v, %v", m, err)
	}
	if n := o.providers.Asked(); n > 2 {
		t.Errorf("the list is asked for %d times", n)
	}
	t.Run("a list that has changed", func(t *testing.T) {
		// Nothing says so but the list itself, which is asked for again when it is old enough.
		o.providers.Offer("", "claude-next")
		o.set(t, "ANTHROPIC_API_KEY", "sk-ant-another") // another key has another list
		if _, _, err := o.CheckModel(t.Context(), o.scope.House, "anthropic/claude-next"); err != nil {
			t.Error(err)
		}
	})
	t.Run("what providers accept and do not list", func(t *testing.T) {
		o.set(t, "OPENROUTER_API_KEY", "sk-or-any")
		o.providers.Offer("", "qwen/qwen3-coder")
		for _, good := range []string{"qwen/qwen3-coder", "qwen/qwen3-coder:free", "qwen/qwen3-coder:nitro", "openrouter/auto", "@preset/mine"} {
			if _, unverified, err := o.CheckModel(t.Context(), o.scope.House, "openrouter/"+good); err != nil || unverified != "" {
				t.Errorf("%s: %q, %v", good, unverified, err)
			}
		}
	})
}

// A server that is down, does not list its models, or not all of them, accepts any.
func TestAModelThatCannotBeCheckedIsAccepted(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"down":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"silent":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no list":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"empty list": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[]}`) },
		"patterns":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[{"id":"openai/*"},{"id":"x"}]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := served(t)
			var asked atomic.Int64
			e := answers(t, model.Chat, "", func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) })
			if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: e.BaseURL, Skip: true}); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			began := time.Now()
			for i := range 20 {
				all.Go(func() {
					if _, unverified, err := o.CheckModel(t.Context(), o.scope.House, fmt.Sprint("lab/any-", i)); err != nil || unverified == "" {
						t.Errorf("%q, %v", unverified, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > 15*time.Second || asked.Load() > 1 {
				t.Errorf("it took %s and %d questions", took, asked.Load())
			}
		})
	}
}

// A house with many silent servers delays neither its own lists nor those of others.
func TestSilentServersDelayNobody(t *testing.T) {
	t.Parallel()
	o := served(t)
	e := answers(t, model.Chat, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for i := range 20 {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: fmt.Sprint("lab-", i), BaseURL: e.BaseURL + fmt.Sprint("/", i), Skip: true}); err != nil {
			t.Fatal(err)
		}
	}
	m := o.models(t)
	began := time.Now()
	o.List(t.Context(), o.scope.House, &m)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The lists that a server keeps do not grow with the houses that it has.
func TestListsAreForgotten(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	var asked atomic.Int64
	ask := asking{models: func(context.Context, model.Endpoint) (model.Listing, error) {
		asked.Add(1)
		return model.Listing{Models: []string{"large"}, Complete: true}, nil
	}}
	h := model.NewHouses(d.DB, secret.New(d.DB, d.Sealer, nil, nil), model.NewInstallation(func(string) string { return "" }, none), ask)
	list := func(i int) {
		m := model.Models{Found: []model.Found{{Endpoint: model.Endpoint{Provider: model.OpenAI, Key: fmt.Sprint("sk-", i)}}}}
		h.List(t.Context(), fmt.Sprint("house-", i), &m)
		if !slices.Equal(m.Found[0].Models, []string{"large"}) {
			t.Errorf("%d has %v", i, m.Found[0].Models)
		}
	}
	for i := range 600 {
		list(i)
	}
	list(599)
	list(200)
	if asked.Load() != 600 {
		t.Errorf("the last ones are asked for again: %d", asked.Load())
	}
	list(0)
	if asked.Load() != 601 {
		t.Errorf("the first one is kept: %d", asked.Load())
	}
}

// What the operator's account has made for itself is not shown to houses.
func TestTheOperatorsOwnModelsAreNotListed(t *testing.T) {
	t.Parallel()
	o := house(t, map[string]string{"OPENAI_API_KEY": "sk-of-the-machine"})
	o.providers.Offer("", "gpt-5", "ft:gpt-4o:acme-internal:merger:1")
	m := o.models(t)
	o.List(t.Context(), o.scope.House, &m)
	if len(m.Found) != 1 || !slices.Equal(m.Found[0].Models, []string{"gpt-5"}) {
		t.Errorf("%+v", m.Found)
	}
	_, _, err := o.CheckModel(t.Context(), o.scope.House, "openai/gpt-6")
	if fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "acme") {
		t.Error(err)
	}
	if _, _, err := o.CheckModel(t.Context(), o.scope.House, "openai/ft:gpt-4o:acme-internal:merger:1"); err != nil {
		t.Error(err)
	}
}
