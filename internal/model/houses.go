package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
)

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

// Models are the models that a house can use.
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

// Models returns the models that a house can use, with the keys, for the server's own use. It makes two queries, and
// asks no provider.
func (h *Houses) Models(ctx context.Context, house string) (m Models, err error) {
	environment, err := h.installation.Environment(ctx)
	if err != nil {
		return Models{}, err
	}
	m, added, err := h.stored(ctx, house)
	if err != nil {
		return Models{}, err
	}
	keys, err := h.keys(ctx, house, added)
	if err != nil {
		return Models{}, err
	}
	own := map[string]bool{}
	for _, f := range h.own(added, keys) {
		own[f.Endpoint.Name] = true
		m.Found = append(m.Found, f)
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

// stored returns the models that a house chose, and the endpoints that it added.
func (h *Houses) stored(ctx context.Context, house string) (m Models, added []query.ModelEndpoint, err error) {
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
	return m, added, err
}

// keys returns the keys of a house for the known providers and for the endpoints that it added, by secret.
func (h *Houses) keys(ctx context.Context, house string, added []query.ModelEndpoint) (map[string]string, error) {
	wanted := map[string]bool{}
	for _, k := range keyNames {
		wanted[k.secret] = true
	}
	for _, e := range added {
		wanted[e.SecretName] = true
	}
	delete(wanted, "")
	return h.secrets.Values(ctx, house, slices.Collect(maps.Keys(wanted))...)
}

// own returns the endpoints that a house has by its own keys, and those that it added.
func (h *Houses) own(added []query.ModelEndpoint, keys map[string]string) (found []Found) {
	add := func(f Found) {
		f.Own = true
		if f.Problem == nil {
			f.Problem = f.Endpoint.Check()
		}
		found = append(found, f)
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
	return found
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
		// Nothing says which of a server's models is good.
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
