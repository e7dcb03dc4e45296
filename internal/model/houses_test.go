package model_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// of is a house, on a machine whose environment has these variables.
type of struct {
	*model.Houses
	secrets *secret.Secrets
	owner   *pgx.Conn
	db      *db.DB
	scope   db.Scope
	// providers is what is asked in place of every provider and server of the house.
	providers *modeltest.Server
}

func house(t *testing.T, variables map[string]string) of {
	t.Helper()
	d := dbtest.Reuse(t, 10)
	installation := model.NewInstallation(func(name string) string { return variables[name] }, func(context.Context, model.Endpoint) (model.Listing, error) {
		return model.Listing{}, context.DeadlineExceeded
	})
	o := of{owner: d.Owner(t), db: d.DB, secrets: secret.New(d.DB, d.Sealer, installation.SecretUses, nil)}
	o.providers = modeltest.New(t, nil)
	o.Houses = model.NewHouses(d.DB, o.secrets, installation, o.providers.Asker())
	err := o.owner.QueryRow(t.Context(), `with h as (insert into houses (name) values ('Home') returning id), a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		select h.id, a.id::text from h, a`).Scan(&o.scope.House, &o.scope.Agent)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o of) set(t *testing.T, name, value string) {
	t.Helper()
	if _, _, err := o.secrets.Set(t.Context(), o.scope, name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func (o of) models(t *testing.T) model.Models {
	t.Helper()
	m, err := o.Models(t.Context(), o.scope.House)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// key returns the key with which a model would be asked.
func (o of) key(t *testing.T, ref string) string {
	t.Helper()
	e, _, err := o.Resolve(t.Context(), o.scope.House, ref)
	if err != nil {
		t.Fatal(err)
	}
	return e.Key
}

func TestAHouseWithoutAModelIsToldHowToGetOne(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	m := o.models(t)
	if len(m.Found) != 0 || m.Default != (model.Ref{}) || fault.CodeOf(m.Problem) != fault.Precondition {
		t.Errorf("it is %+v", m)
	}
	for _, ref := range []string{"", "anthropic/claude-sonnet-4-6"} {
		if _, _, err := o.Resolve(t.Context(), o.scope.House, ref); fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "arbe secret set ANTHROPIC_API_KEY") {
			t.Errorf("%q: %v", ref, err)
		}
	}
	o.set(t, "ANTHROPIC_API_KEY", "sk-ant-of-the-house")
	e, ref, err := o.Resolve(t.Context(), o.scope.House, "")
	if err != nil || e.Key != "sk-ant-of-the-house" || ref.Endpoint != "anthropic" || ref.Model == "" || e.Trusted {
		t.Errorf("with a key it is %v, %v: %v", e, ref, err)
	}
	list, err := o.secrets.List(t.Context(), o.scope)
	if err != nil || len(list) != 1 || list[0].UsedAt.IsZero() {
		t.Errorf("the use is not recorded: %+v, %v", list, err)
	}
}

func TestAHousesKeyWinsOverTheInstallations(t *testing.T) {
	t.Parallel()
	o := house(t, map[string]string{"ANTHROPIC_API_KEY": "sk-ant-of-the-machine", "OPENAI_API_KEY": "sk-of-the-machine"})
	if got := o.key(t, "anthropic/claude"); got != "sk-ant-of-the-machine" {
		t.Errorf("the key is %q", got)
	}
	o.set(t, "ANTHROPIC_API_KEY", "sk-ant-of-the-house")
	if got := o.key(t, "anthropic/claude"); got != "sk-ant-of-the-house" {
		t.Errorf("the key is %q", got)
	}
	if got := o.key(t, "openai/gpt"); got != "sk-of-the-machine" {
		t.Errorf("the key is %q", got)
	}
	var names []string
	for _, f := range o.models(t).Found {
		names = append(names, f.Endpoint.Name)
	}
	if !slices.Equal(names, []string{"anthropic", "openai"}) {
		t.Errorf("it finds %v", names)
	}
}

func TestTheDefaultModelOfAHouse(t *testing.T) {
	t.Parallel()
	o := house(t, map[string]string{"OPENAI_API_KEY": "sk-of-the-machine", "ARBE_MODEL": "openai/gpt-5"})
	if m := o.models(t); m.Default.String() != "openai/gpt-5" || m.Problem != nil {
		t.Errorf("it is %v, %v", m.Default, m.Problem)
	}
	m, _, err := o.SetDefault(t.Context(), o.scope, "anthropic/claude", false)
	if err != nil || m.Default.String() != "anthropic/claude" || !strings.Contains(fault.From(m.Problem).Error(), "ANTHROPIC_API_KEY") {
		t.Errorf("without its key it is %v, %v: %v", m.Default, m.Problem, err)
	}
	if _, _, err := o.Resolve(t.Context(), o.scope.House, ""); fault.CodeOf(err) != fault.Precondition {
		t.Error(err)
	}
	o.set(t, "ANTHROPIC_API_KEY", "sk-ant-of-the-house")
	if got := o.key(t, ""); got != "sk-ant-of-the-house" {
		t.Errorf("the key is %q", got)
	}
	if err := o.secrets.Delete(t.Context(), o.scope, "ANTHROPIC_API_KEY", false); !strings.Contains(err.Error(), "default model anthropic/claude") {
		t.Errorf("deleting its key: %v", err)
	}
	for _, wrong := range []string{"claude", "nobody/claude", "openai/", "/x", "openai/a b", strings.Repeat("x", 400)} {
		if _, _, err := o.SetDefault(t.Context(), o.scope, wrong, false); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if m, _, err = o.SetDefault(t.Context(), o.scope, "", false); err != nil || m.Default.String() != "openai/gpt-5" {
		t.Errorf("reset it is %v: %v", m.Default, err)
	}
}

func TestAHousesOwnEndpoint(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	for range 2 { // a retry
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: "https://models.example.com/v1", Secret: "LAB_KEY"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := o.Resolve(t.Context(), o.scope.House, "lab/large"); !strings.Contains(err.Error(), "arbe secret set LAB_KEY") {
		t.Errorf("without its key: %v", err)
	}
	o.set(t, "LAB_KEY", "key-of-the-lab")
	e, _, err := o.Resolve(t.Context(), o.scope.House, "lab/large")
	if err != nil || e.Key != "key-of-the-lab" || e.Trusted || e.Dialect != model.Chat {
		t.Errorf("it is %+v: %v", e, err)
	}
	for _, address := range []string{"", "file:///etc/passwd", "http://169.254.169.254/", "http://127.0.0.1:11434/v1", "http://localhost/v1", "http://10.0.0.1/", "https://user:pass@models.example.com/", "https://x.example/?key=1"} {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "bad", BaseURL: address}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, name := range []string{"anthropic", "Lab", "", "a b", "../x", "compatible"} {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: name, BaseURL: "https://models.example.com/v1"}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, _, err := o.Resolve(t.Context(), o.scope.House, ""); !strings.Contains(err.Error(), "not chosen its default model") {
		t.Errorf("which of its models is used by default: %v", err)
	}
	if err := o.DeleteEndpoint(t.Context(), o.scope, "lab"); err != nil {
		t.Fatal(err)
	}
	if err := o.DeleteEndpoint(t.Context(), o.scope, "lab"); err != nil {
		t.Errorf("a retry: %v", err)
	}
	if m := o.models(t); len(m.Found) != 0 {
		t.Errorf("it still finds %v", m.Found)
	}
}

func TestTheKeyOfAHousesOwnEndpoint(t *testing.T) {
	t.Parallel()
	const one, two = "https://one.example.com/v1", "https://two.example.com/v1"
	put := func(t *testing.T, o of, s model.Server) {
		t.Helper()
		if _, err := o.SetEndpoint(t.Context(), o.scope, s); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	secrets := func(t *testing.T, o of) (names []string) {
		t.Helper()
		list, err := o.secrets.List(t.Context(), o.scope)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names
	}
	has := func(t *testing.T, o of, want ...string) {
		t.Helper()
		if got := secrets(t, o); !slices.Equal(got, want) {
			t.Errorf("the house has the secrets %q, want %q", got, want)
		}
	}
	t.Run("is a secret of its own, also if two owners add servers of similar names at once", func(t *testing.T) {
		t.Parallel()
		o := house(t, nil)
		names := []string{"my-lab", "my_lab", "my-l-ab", "my-l_ab", "my_l-ab"}
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: name, BaseURL: one, Key: "key-of-" + name}); err != nil {
					t.Error(fault.From(err).Detail())
				}
			})
		}
		all.Wait()
		for _, name := range names {
			if got := o.key(t, name+"/large"); got != "key-of-"+name {
				t.Errorf("the key of %s is %q", name, got)
			}
		}
	})
	t.Run("is replaced at the same address, and goes with the server and with its old address", func(t *testing.T) {
		t.Parallel()
		o := house(t, nil)
		for _, key := range []string{"first-key", "second-key", "second-key"} {
			put(t, o, model.Server{Name: "lab", BaseURL: one, Key: key})
			if got := o.key(t, "lab/large"); got != key {
				t.Errorf("the key is %q, want %q", got, key)
			}
			has(t, o, "MODEL_LAB_KEY")
		}
		// The name of the old key is not used again: a request that is just being prepared would send the new one there.
		put(t, o, model.Server{Name: "lab", BaseURL: two, Key: "third-key"})
		has(t, o, "MODEL_LAB_KEY_2")
		put(t, o, model.Server{Name: "lab", BaseURL: two})
		has(t, o, "MODEL_LAB_KEY_2")
		if got := o.key(t, "lab/large"); got != "third-key" { // set again without a key, as a form is sent
			t.Errorf("the key is %q", got)
		}
		put(t, o, model.Server{Name: "lab", BaseURL: one})
		has(t, o)
		put(t, o, model.Server{Name: "lab", BaseURL: one, Key: "fourth-key"})
		has(t, o, "MODEL_LAB_KEY")
		for range 2 { // a retry
			if err := o.DeleteEndpoint(t.Context(), o.scope, "lab"); err != nil {
				t.Fatal(err)
			}
		}
		has(t, o)
	})
	t.Run("stays if something else uses it, or if somebody named it", func(t *testing.T) {
		t.Parallel()
		o := house(t, nil)
		o.set(t, "LAB_KEY", "key-of-the-lab")
		put(t, o, model.Server{Name: "lab", BaseURL: one, Key: "first-key"})
		put(t, o, model.Server{Name: "other", BaseURL: one, Secret: "MODEL_LAB_KEY"})
		put(t, o, model.Server{Name: "named", BaseURL: one, Secret: "LAB_KEY"})
		put(t, o, model.Server{Name: "named", BaseURL: two})
		o.set(t, "MODEL_ALIKE_KEY", "key-of-a-person")
		put(t, o, model.Server{Name: "alike", BaseURL: one, Secret: "MODEL_ALIKE_KEY"})
		for _, name := range []string{"lab", "named", "alike"} {
			if err := o.DeleteEndpoint(t.Context(), o.scope, name); err != nil {
				t.Fatal(err)
			}
		}
		has(t, o, "LAB_KEY", "MODEL_ALIKE_KEY", "MODEL_LAB_KEY")
		if got := o.key(t, "other/large"); got != "first-key" {
			t.Errorf("the key of the other one is %q", got)
		}
	})
	t.Run("is set with the server or not at all", func(t *testing.T) {
		t.Parallel()
		o := house(t, nil)
		put(t, o, model.Server{Name: "lab", BaseURL: one, Key: "first-key"})
		for _, wrong := range []model.Server{
			{Name: "lab", BaseURL: two, Key: "no\x00key"},
			{Name: "lab", BaseURL: two, Key: "some-key", Secret: "LAB_KEY"},
			{Name: "lab", BaseURL: "file:///etc/passwd", Key: "some-key"},
		} {
			if _, err := o.SetEndpoint(t.Context(), o.scope, wrong); fault.CodeOf(err) != fault.Invalid {
				t.Errorf("of %+v it says %v", wrong, err)
			}
		}
		if _, err := o.owner.Exec(t.Context(), "update house_keys set sealed = 'damaged'"); err != nil {
			t.Fatal(err)
		}
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: two, Key: "second-key"}); err == nil {
			t.Error("it sets a key that it cannot seal")
		}
		var address string
		if err := o.owner.QueryRow(t.Context(), "select base_url from model_endpoints").Scan(&address); err != nil || address != one {
			t.Errorf("the server is at %s (%v)", address, err)
		}
		has(t, o, "MODEL_LAB_KEY")
	})
}

func TestAHousesOwnEndpointMayBePrivateIfTheOperatorNamesItsHost(t *testing.T) {
	t.Parallel()
	o := house(t, nil)
	var err error
	if o.PrivateHosts, err = outbound.ParseHosts("models.lan", "127.0.0.1:11434", "169.254.169.254"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://127.0.0.1:11434/v1", "http://models.lan/v1"} {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "lab", BaseURL: address}); err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		if e, _, err := o.Resolve(t.Context(), o.scope.House, "lab/large"); err != nil || !e.Trusted || e.BaseURL != address {
			t.Errorf("it is %+v: %v", e, err)
		}
	}
	for _, address := range []string{"http://127.0.0.1:5432/v1", "http://127.0.0.2/v1", "http://10.0.0.1/", "http://localhost/v1", "http://169.254.169.254/"} {
		if _, err := o.SetEndpoint(t.Context(), o.scope, model.Server{Name: "bad", BaseURL: address}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAModelKeyIsOneLine(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"sk-ant\n", "a b", "sk-\x00", "sk-é"} {
		if err := model.CheckSecret("ANTHROPIC_API_KEY", value); fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
		if err := model.CheckSecret("DEPLOY_KEY", value); err != nil {
			t.Errorf("%q of another secret: %v", value, err)
		}
	}
}

func TestTheMachineIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	started, release := make(chan struct{}, 10), make(chan struct{})
	i := model.NewInstallation(func(string) string { return "" }, func(context.Context, model.Endpoint) (model.Listing, error) {
		looks.Add(1)
		started <- struct{}{}
		<-release
		return model.Listing{Models: []string{"qwen3"}}, nil
	})
	<-started // at once, without anybody asking
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := i.Environment(ended); err == nil {
		t.Error("it does not wait for the first look")
	}
	close(release)
	env, err := i.Environment(t.Context())
	if err != nil || env.Default.String() != "ollama/qwen3" || looks.Load() != 1 {
		t.Errorf("it finds %v after %d looks: %v", env.Default, looks.Load(), err)
	}
}

func TestOnlyTheHousesThatTheOperatorNamesUseTheInstallationsModels(t *testing.T) {
	t.Parallel()
	o := house(t, map[string]string{"ANTHROPIC_API_KEY": "sk-ant-of-the-machine", "ARBE_MODEL": "anthropic/claude-sonnet-4-6"})
	if f := o.models(t).Found; len(f) != 1 || !f[0].Endpoint.Shared {
		t.Errorf("without a list, it finds %+v", f)
	}
	o.SharedWith = []string{"another"}
	if m := o.models(t); len(m.Found) != 0 || m.Default != (model.Ref{}) || m.Problem == nil {
		t.Errorf("a house that is not in the list finds %+v", m)
	}
	if e, _, err := o.Resolve(t.Context(), o.scope.House, "anthropic/claude-sonnet-4-6"); err == nil || e.Key != "" {
		t.Errorf("and resolves %+v: %v", e, err)
	}
	o.set(t, "ANTHROPIC_API_KEY", "sk-ant-of-the-house")
	if e, _, err := o.Resolve(t.Context(), o.scope.House, "anthropic/claude-sonnet-4-6"); err != nil || e.Key != "sk-ant-of-the-house" || e.Shared {
		t.Errorf("with a key of its own it resolves %+v: %v", e, err)
	}
	o.SharedWith = []string{"another", o.scope.House}
	if e, _, err := o.Resolve(t.Context(), o.scope.House, "anthropic/claude-sonnet-4-6"); err != nil || e.Shared {
		t.Errorf("its own key counts as the installation's: %+v: %v", e, err)
	}
}
