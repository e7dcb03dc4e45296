package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
)

// keyNames are the secrets of a house that are keys of providers, in the order of preference.
var keyNames = []struct {
	secret   string
	provider Provider
}{
	{"ANTHROPIC_API_KEY", Anthropic}, {"OPENAI_API_KEY", OpenAI}, {"OPENROUTER_API_KEY", OpenRouter}, {"GEMINI_API_KEY", Google},
}

// KeyVariables are the environment variables in which the installation may have keys.
var KeyVariables = []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"}

// KeySecret returns the name of the secret in which a house has its key of a provider; empty if it can have none.
func KeySecret(p Provider) string {
	for _, k := range keyNames {
		if k.provider == p {
			return k.secret
		}
	}
	return ""
}

// CheckSecret reports what is wrong with the value of a secret that is a provider's key, as [Endpoint.Check] does. It
// accepts every value of another secret.
func CheckSecret(name, value string) error {
	for _, k := range keyNames {
		if k.secret == name {
			return Endpoint{Provider: k.provider, Key: value}.Check()
		}
	}
	return nil
}

// Keys returns which of some names are secrets with keys of models: those of providers, whether set or not, and those
// of the house's servers. Callers let only owners set, delete or bind them, as [Houses.SetEndpoint].
func (h *Houses) Keys(ctx context.Context, house string, names ...string) (keys []string, err error) {
	var added []query.ModelEndpoint
	if err := h.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) (err error) {
		added, err = h.q.ListModelEndpoints(ctx, tx, house)
		return err
	}); err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains(KeyVariables, name) || slices.ContainsFunc(added, func(e query.ModelEndpoint) bool { return e.SecretName == name }) {
			keys = append(keys, name)
		}
	}
	return keys, nil
}

const (
	// probeEvery is how long what the machine offers is assumed to be unchanged. Models may be pulled into an Ollama,
	// or it may be restarted.
	probeEvery = time.Minute
	// maxEndpoints limits the endpoints that a house adds.
	maxEndpoints = 20
)

// Installation is what the operator's machine offers, probed from time to time. It is safe for concurrent use.
type Installation struct {
	look func(context.Context) Environment

	mu      sync.Mutex
	found   Environment
	at      time.Time
	looking chan struct{} // closed when the probe in progress ends; nil if there is none
}

// NewInstallation returns the Installation of [FromEnvironment], which it calls for the first time at once, in the
// background.
func NewInstallation(getenv func(string) string, probe Probe) *Installation {
	i := &Installation{look: func(ctx context.Context) Environment { return FromEnvironment(ctx, getenv, probe) }}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lookAgain()
	return i
}

func (i *Installation) lookAgain() {
	done := make(chan struct{})
	i.looking = done
	go func() {
		found := i.look(context.Background()) // it limits its own time
		i.mu.Lock()
		defer i.mu.Unlock()
		i.found, i.at, i.looking = found, time.Now(), nil
		close(done)
	}()
}

// Environment returns the result of the last probe. It waits only for the first one, at most until ctx ends.
func (i *Installation) Environment(ctx context.Context) (Environment, error) {
	i.mu.Lock()
	if i.looking == nil && time.Since(i.at) > probeEvery {
		i.lookAgain()
	}
	found, first, looking := i.found, i.at.IsZero(), i.looking
	i.mu.Unlock()
	if !first {
		return found, nil
	}
	select {
	case <-looking:
	case <-ctx.Done():
		return Environment{}, ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.found, nil
}

// Houses says which models houses can use: those of their own keys and endpoints, and those of the installation. It is
// safe for concurrent use.
type Houses struct {
	// PrivateHosts are hosts at private addresses whose servers houses may add. Other private hosts are refused,
	// because members could make this server call addresses that only it can reach. Defaults to none; set it before the
	// first use.
	PrivateHosts outbound.Hosts
	// SharedWith are the houses that use the models of the installation. Defaults to nil: all do.
	SharedWith []string

	db           *db.DB
	secrets      *secret.Secrets
	installation *Installation
	q            *query.Queries
	ask          Asker
	lists        *lists
	tries        tries
}

// NewHouses returns a Houses. ask tries the keys and servers that houses set, and lists models.
func NewHouses(d *db.DB, secrets *secret.Secrets, installation *Installation, ask Asker) *Houses {
	return &Houses{db: d, secrets: secrets, installation: installation, q: query.New(), ask: ask, lists: &lists{ask: ask}}
}

// Models are what a house can use.
type Models struct {
	// Found are the endpoints: the house's own first, then those of the installation whose names the house does not use
	// itself.
	Found []Found
	// Default is the model of bots without one of their own; the zero Ref if there is none.
	Default Ref
	// Chosen is the default that the house chose; empty if it follows the installation.
	Chosen string
	// Problem says why Default cannot be used, or that there is none; nil if it can be used.
	Problem error
	// Fallbacks are the refs of the models that bots ask, in this order, while the provider of their own model does not
	// answer.
	Fallbacks []string
}

// noModel is the error of a house without models.
func noModel() error {
	return fault.New(fault.Precondition, "this house has no model yet",
		"paste a key under Settings, Models; or run: arbe secret set ANTHROPIC_API_KEY (or OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY)").WithReason(fault.NoModel)
}

// Endpoints returns the endpoints of a house, with their keys, for the server's own use.
func (h *Houses) Endpoints(ctx context.Context, house string) ([]Found, error) {
	m, err := h.Models(ctx, house)
	return m.Found, err
}

// Models returns what a house can use. The result has the keys, for the server's own use. Models asks the database
// twice and no provider.
func (h *Houses) Models(ctx context.Context, house string) (m Models, err error) {
	environment, err := h.installation.Environment(ctx)
	if err != nil {
		return Models{}, err
	}
	var added []query.ModelEndpoint
	err = h.db.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		if m.Chosen, err = h.q.ModelOfHouse(ctx, tx, house); errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "there is no such house", "list your houses with: arbe house list")
		} else if err != nil {
			return err
		}
		if m.Fallbacks, err = h.q.FallbackModels(ctx, tx, house); err != nil {
			return err
		}
		added, err = h.q.ListModelEndpoints(ctx, tx, house)
		return err
	})
	if err != nil {
		return Models{}, err
	}
	wanted := map[string]bool{}
	for _, k := range keyNames {
		wanted[k.secret] = true
	}
	for _, e := range added {
		wanted[e.SecretName] = true
	}
	delete(wanted, "")
	keys, err := h.secrets.Values(ctx, house, slices.Collect(maps.Keys(wanted))...)
	if err != nil {
		return Models{}, err
	}
	own := map[string]bool{}
	add := func(f Found) {
		f.Own, own[f.Endpoint.Name] = true, true
		if f.Problem == nil {
			f.Problem = f.Endpoint.Check()
		}
		m.Found = append(m.Found, f)
	}
	for _, k := range keyNames {
		if key := keys[k.secret]; key != "" {
			add(Found{Endpoint: Endpoint{Provider: k.provider, Key: key, KeyName: k.secret}.withDefaults(), Source: "the house's " + k.secret, Secret: k.secret, Default: defaultModel(k.provider)})
		}
	}
	for _, e := range added {
		f := Found{Endpoint: h.endpoint(e, keys[e.SecretName]), Source: "added by the house", Secret: e.SecretName}
		f.Endpoint.KeyName = e.SecretName
		if e.SecretName != "" && keys[e.SecretName] == "" {
			f.Problem = fault.Newf(fault.Precondition, "set it with: arbe secret set "+e.SecretName, "the house has no secret %s, which has the key", e.SecretName).WithReason(fault.NoModelKey)
		}
		add(f)
	}
	if len(h.SharedWith) > 0 && !slices.Contains(h.SharedWith, house) {
		environment = Environment{}
	}
	for _, f := range environment.Found {
		if !own[f.Endpoint.Name] {
			f.Endpoint.Shared = true
			m.Found = append(m.Found, f)
		}
	}
	m.choose(environment)
	return m, nil
}

// endpoint returns an endpoint that a house added.
func (h *Houses) endpoint(row query.ModelEndpoint, key string) Endpoint {
	e := Endpoint{Provider: Compatible, Name: row.Name, BaseURL: row.BaseUrl, Dialect: dialectWords[row.Dialect], Key: key}
	if u, err := url.Parse(row.BaseUrl); err == nil {
		e.Trusted = h.PrivateHosts.AllowsURL(u)
	}
	return e.withDefaults()
}

// names returns the names of the endpoints.
func (m Models) names() (names []string) {
	for _, f := range m.Found {
		names = append(names, f.Endpoint.Name)
	}
	return names
}

// choose sets the default: the house's choice, else the installation's default, else the first model that was found.
func (m *Models) choose(installation Environment) {
	switch {
	case m.Chosen != "":
		if m.Default, m.Problem = ParseRef(m.Chosen, m.names()...); m.Problem != nil {
			return
		}
	case installation.Default != (Ref{}):
		m.Default = installation.Default
	default:
		for _, f := range m.Found {
			if f.Problem == nil && f.Default != "" {
				m.Default = Ref{f.Endpoint.Name, f.Default}
				break
			}
		}
	}
	if m.Default == (Ref{}) {
		m.Problem = noModel()
		// Nothing says which of a server's models is a good one.
		if slices.ContainsFunc(m.Found, func(f Found) bool { return f.Problem == nil }) {
			m.Problem = fault.New(fault.Precondition, "this house has not chosen its default model", "choose it under Settings, Models; or run: arbe model default PROVIDER/MODEL").WithReason(fault.NoModel)
		}
		return
	}
	_, m.Problem = m.find(m.Default)
}

// find returns the endpoint of a model.
func (m Models) find(ref Ref) (Found, error) {
	for _, f := range m.Found {
		if f.Endpoint.Name == ref.Endpoint {
			return f, f.Problem
		}
	}
	if len(m.Found) == 0 {
		return Found{}, noModel()
	}
	next := fmt.Sprintf("add the endpoint with: arbe model add %s URL", ref.Endpoint)
	if name := KeySecret(Provider(ref.Endpoint)); name != "" {
		next = "set its key with: arbe secret set " + name
	}
	return Found{}, fault.Newf(fault.Precondition, next+"; or use another model: arbe model list", "this house has no key for %s, which has the model %s", ref.Endpoint, ref).WithReason(fault.NoModelKey)
}

// Resolve returns the endpoint and the ref of a model that a house is about to use, or of its default if model is
// empty. It records the use of the secret with the key. The error is a [fault.Error] that says what to do, for people
// of the house.
func (h *Houses) Resolve(ctx context.Context, house, model string) (Endpoint, Ref, error) {
	m, err := h.Models(ctx, house)
	if err != nil {
		return Endpoint{}, Ref{}, err
	}
	ref := m.Default
	if model != "" {
		if ref, err = ParseRef(model, m.names()...); err != nil {
			return Endpoint{}, Ref{}, err
		}
	} else if m.Problem != nil {
		return Endpoint{}, Ref{}, m.Problem
	}
	f, err := m.find(ref)
	if err != nil {
		return Endpoint{}, Ref{}, err
	}
	if f.Secret != "" {
		if err := h.secrets.Used(ctx, house, f.Secret); err != nil {
			return Endpoint{}, Ref{}, err
		}
	}
	return f.Endpoint, ref, nil
}

// SetDefault sets the model of the house's bots without one of their own; empty to follow the installation. A model
// whose key is missing is accepted, because the key may be set next. The errors and unverified are those of
// [Houses.CheckModel]; skip accepts the model without checking that it exists.
func (h *Houses) SetDefault(ctx context.Context, scope db.Scope, model string, skip bool) (set Models, unverified string, err error) {
	if model != "" {
		m, err := h.Models(ctx, scope.House)
		if err != nil {
			return Models{}, "", err
		}
		if model, unverified, err = h.accept(ctx, scope.House, m, model, skip, m.Chosen); err != nil {
			return Models{}, "", err
		}
	}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		_, err := h.q.SetDefaultModel(ctx, tx, model, scope.House)
		return err
	})
	if err != nil {
		return Models{}, "", err
	}
	set, err = h.Models(ctx, scope.House)
	return set, unverified, err
}

// accept returns the ref of a model that is about to be set, as text. It does not check a model again that was set
// before.
func (h *Houses) accept(ctx context.Context, house string, m Models, model string, skip bool, before ...string) (ref, unverified string, err error) {
	parsed, err := ParseRef(model, m.names()...)
	if err != nil || slices.Contains(before, parsed.String()) {
		return parsed.String(), "", err
	}
	if skip {
		return parsed.String(), wanted, nil
	}
	parsed, unverified, err = h.check(ctx, house, m, model)
	return parsed.String(), unverified, err
}

// Fallbacks are the models that bots ask while the provider of their own model does not answer.
type Fallbacks struct {
	// Models are their refs, preferred first.
	Models []string
	// Problem says why one of them cannot be used now; nil if all can. Unverified says why it is unknown whether one
	// exists; empty if that is known.
	Problem    error
	Unverified string
}

// SetFallbacks sets the models that bots of the scope's house ask, in this order, while the provider of their own model
// does not answer. As with [Houses.SetDefault], a key may be set next.
func (h *Houses) SetFallbacks(ctx context.Context, scope db.Scope, models []string, skip bool) (Fallbacks, error) {
	m, err := h.Models(ctx, scope.House)
	if err != nil {
		return Fallbacks{}, err
	}
	set := Fallbacks{Models: []string{}}
	for _, model := range models {
		ref, unverified, err := h.accept(ctx, scope.House, m, model, skip, m.Fallbacks...)
		if err != nil {
			return Fallbacks{}, err
		}
		if slices.Contains(set.Models, ref) {
			continue
		}
		set.Models, set.Unverified = append(set.Models, ref), cmp.Or(set.Unverified, unverified)
		if parsed, err := ParseRef(ref, m.names()...); err == nil && set.Problem == nil {
			_, set.Problem = m.find(parsed)
		}
	}
	return set, h.db.In(ctx, scope, func(tx pgx.Tx) error {
		_, err := h.q.SetFallbackModels(ctx, tx, set.Models, scope.House)
		return err
	})
}

// Fallbacks returns the refs that SetFallbacks set.
func (h *Houses) Fallbacks(ctx context.Context, scope db.Scope) (models []string, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		models, err = h.q.FallbackModels(ctx, tx, scope.House)
		return err
	})
	return models, err
}

// SecretUses is a [secret.Uses]: the default model of a house and its bots use the secrets with the keys of their
// models. A default that nobody chose counts too, because bots without their own model fail without its key.
func (i *Installation) SecretUses(ctx context.Context, tx pgx.Tx, house string) (map[string][]secret.Use, error) {
	q := query.New()
	chosen, err := q.ModelOfHouse(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	added, err := q.ListModelEndpoints(ctx, tx, house)
	if err != nil {
		return nil, err
	}
	if chosen == "" {
		if chosen, err = i.followed(ctx, tx, house); err != nil {
			return nil, err
		}
	}
	keyOf := func(ref string) string {
		endpoint, _, _ := strings.Cut(ref, "/")
		for _, e := range added {
			if e.Name == endpoint {
				return e.SecretName
			}
		}
		return KeySecret(Provider(endpoint))
	}
	uses := map[string][]secret.Use{}
	err = eachUse(ctx, tx, house, chosen, func(ref string, u secret.Use) {
		if name := keyOf(ref); name != "" {
			uses[name] = append(uses[name], u)
		}
	})
	return uses, err
}

// eachUse calls add with the ref of each model that a house uses. chosen is the house's default.
func eachUse(ctx context.Context, tx pgx.Tx, house, chosen string, add func(ref string, u secret.Use)) error {
	if chosen != "" {
		add(chosen, secret.Use{Kind: "default model", Name: chosen})
	}
	q := query.New()
	fallbacks, err := q.FallbackModels(ctx, tx, house)
	if err != nil {
		return err
	}
	for _, ref := range fallbacks {
		add(ref, secret.Use{Kind: "fallback model", Name: ref})
	}
	bots, err := q.ModelsOfBots(ctx, tx, house)
	for _, b := range bots {
		add(cmp.Or(b.Model, chosen), secret.Use{Kind: "bot", Name: "@" + b.Handle})
	}
	return err
}

// Uses returns what uses the models of an endpoint of the scope's house: the default, fallbacks and bots.
func (h *Houses) Uses(ctx context.Context, scope db.Scope, endpoint string) (uses []secret.Use, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		chosen, err := h.q.ModelOfHouse(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		return eachUse(ctx, tx, scope.House, chosen, func(ref string, u secret.Use) {
			if strings.HasPrefix(ref, endpoint+"/") {
				uses = append(uses, u)
			}
		})
	})
	return uses, err
}

// followed returns the ref of the default model of a house that chose none; empty if there is none, or if it needs no
// secret of the house.
func (i *Installation) followed(ctx context.Context, tx pgx.Tx, house string) (string, error) {
	environment, err := i.Environment(ctx)
	if err != nil || environment.Default != (Ref{}) {
		return environment.Default.String(), err
	}
	names, err := query.New().SecretNames(ctx, tx, house)
	for _, k := range keyNames {
		if slices.Contains(names, k.secret) {
			return Ref{string(k.provider), defaultModel(k.provider)}.String(), err
		}
	}
	return "", err
}

func (h *Houses) check(ctx context.Context, house string, m Models, model string) (ref Ref, unverified string, err error) {
	if ref, err = ParseRef(model, m.names()...); err != nil {
		return Ref{}, "", err
	}
	f, problem := m.find(ref)
	switch {
	case problem != nil && f.Endpoint.Shared: // the operator must fix it
		return ref, f.Endpoint.Title() + " cannot be used now", nil
	case problem != nil:
		return ref, fault.From(problem).Message, nil
	}
	for _, fresh := range []time.Duration{listFresh, listAgain} {
		list, err := h.lists.get(ctx, house, f.Endpoint, fresh)
		failed, isError := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return Ref{}, "", ctx.Err()
		case isError && failed.unlisted:
			return ref, f.Endpoint.Title() + " does not list its models", nil
		case isError:
			return ref, f.Endpoint.Title() + " could not be asked for its models: " + failed.Brief(), nil
		case err != nil:
			return ref, f.Endpoint.Title() + " could not be asked for its models", nil
		case list.has(f.Endpoint, ref.Model):
			return ref, "", nil
		case !list.Complete:
			return ref, f.Endpoint.Title() + " does not list all its models", nil
		case fresh == listAgain: // the model may be newer than the list
			return Ref{}, "", list.noSuch(f.Endpoint, ref.Model)
		}
	}
	return ref, "", nil
}
