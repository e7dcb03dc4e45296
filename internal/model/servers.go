package model

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// maxEndpoints limits the endpoints that a house adds.
const maxEndpoints = 20

// Server is a server with models that a house adds.
type Server struct {
	Name, BaseURL string
	// Dialect is the server's dialect. Defaults to the previous one at this address, else to the one that the form of
	// the address suggests, else to [Chat].
	Dialect Dialect
	// Secret is the name of the secret with its key, which may be set later; empty if it needs no key.
	Secret string
	// Key is its key, instead of Secret. It is stored in a secret whose name no other server uses.
	Key string
	// Skip accepts the server without trying it.
	Skip bool
}

// SetEndpoint adds a server with models to the scope's house, or changes the one of this name. Callers let only owners
// do so, because the secret is sent to the address. Bots are always refused.
//
// It tries the server first, like [Houses.TryKey], unless the key is to be set later. It sets a key and its server
// together or not at all. A secret that was created for the server is deleted when the server moves to another address
// or gets another secret, unless something else uses it.
func (h *Houses) SetEndpoint(ctx context.Context, scope db.Scope, s Server) (tried Tried, err error) {
	if err := h.endpoint(query.ModelEndpoint{Name: s.Name, BaseUrl: s.BaseURL}, s.Key).Check(); err != nil {
		return Tried{}, err
	}
	if s.Secret != "" {
		if s.Key != "" {
			return Tried{}, fault.New(fault.Invalid, "key: there is a secret_name, too", "give the key, or the name of the secret that has it")
		}
		if err := secret.CheckName(s.Secret); err != nil {
			return Tried{}, err
		}
	}
	from, key, err := h.keyFor(ctx, scope, &s)
	if err != nil {
		return Tried{}, err
	}
	if tried, err = h.tryServer(ctx, scope, s, from, key); err != nil {
		return Tried{}, err
	}
	if s.Key != "" {
		return tried, h.secrets.SetChosen(ctx, scope, []byte(s.Key), func(tx pgx.Tx) (string, error) { return h.putTx(ctx, tx, scope.House, s) })
	}
	return tried, h.db.In(ctx, scope, func(tx pgx.Tx) error {
		_, err := h.putTx(ctx, tx, scope.House, s)
		return err
	})
}

// keyFor returns the key for a server, and the secret that has it unless it is given. It fills in the dialect.
func (h *Houses) keyFor(ctx context.Context, scope db.Scope, s *Server) (from, key string, err error) {
	added, err := h.addedForPeople(ctx, scope)
	if err != nil {
		return "", "", err
	}
	from, key = s.Secret, s.Key
	for _, a := range added {
		if a.Name == s.Name && a.BaseUrl == s.BaseURL {
			s.Dialect = cmp.Or(s.Dialect, dialectWords[a.Dialect])
			if a.KeyMade && key == "" {
				from = cmp.Or(from, a.SecretName)
			}
		}
	}
	s.Dialect = cmp.Or(s.Dialect, dialectOf(s.BaseURL))
	if from != "" {
		values, err := h.secrets.Values(ctx, scope.House, from)
		if err != nil {
			return "", "", err
		}
		key = values[from]
	}
	return from, key, nil
}

// tryServer tries a server with the key of the secret from, or says why it does not.
func (h *Houses) tryServer(ctx context.Context, scope db.Scope, s Server, from, key string) (Tried, error) {
	if s.Skip {
		return Tried{Not: wanted}, nil
	}
	if from != "" && key == "" {
		return Tried{Not: "the house has no secret " + from + " yet"}, nil
	}
	e := h.endpoint(query.ModelEndpoint{Name: s.Name, BaseUrl: s.BaseURL, Dialect: s.Dialect.Word()}, key)
	if err := e.Check(); err != nil { // the secret may not hold a key
		return Tried{}, err
	}
	return h.try(ctx, scope, "key", e)
}

// putTx writes a server, and returns the name of the secret with its key.
func (h *Houses) putTx(ctx context.Context, tx pgx.Tx, house string, s Server) (string, error) {
	added, err := h.changeTx(ctx, tx, house)
	if err != nil {
		return "", err
	}
	var old query.ModelEndpoint
	if at := slices.IndexFunc(added, func(e query.ModelEndpoint) bool { return e.Name == s.Name }); at >= 0 {
		old = added[at]
	} else if len(added) >= maxEndpoints {
		return "", fault.Newf(fault.Exhausted, "remove one that is not used: arbe model remove NAME", "a house has at most %d endpoints of its own", maxEndpoints)
	}
	made := s.Key != ""
	if made {
		names, err := h.q.SecretNames(ctx, tx, house)
		if err != nil {
			return "", err
		}
		s.Secret = secretFor(s, added, names)
	} else if old.KeyMade && old.BaseUrl == s.BaseURL && (s.Secret == "" || s.Secret == old.SecretName) {
		s.Secret, made = old.SecretName, true
	}
	if s.Secret != old.SecretName {
		if err := h.checkUnboundTx(ctx, tx, house, s.Secret); err != nil {
			return "", err
		}
	}
	err = h.q.PutModelEndpoint(ctx, tx, query.PutModelEndpointParams{HouseID: house, Name: s.Name, BaseUrl: s.BaseURL, Dialect: s.Dialect.Word(), SecretName: s.Secret, KeyMade: made})
	if err == nil && old.SecretName != s.Secret {
		err = h.dropTx(ctx, tx, old)
	}
	return s.Secret, err
}

// checkUnboundTx refuses a secret that an environment gives to its commands. A member may have bound it before it was a
// key of models.
func (h *Houses) checkUnboundTx(ctx context.Context, tx pgx.Tx, house, name string) error {
	bound, err := h.q.EnvironmentsThatBind(ctx, tx, house, name)
	if err != nil || len(bound) == 0 {
		return err
	}
	return fault.Newf(fault.Precondition, "use another secret, or take it out of the environment first",
		"the environment %s gives the secret %s to its commands, which could read the key", bound[0], name)
}

// DeleteEndpoint removes a server with models from the scope's house, and the secret that was created for it, unless
// something else uses it. Removing one that does not exist succeeds.
func (h *Houses) DeleteEndpoint(ctx context.Context, scope db.Scope, name string) error {
	return h.db.In(ctx, scope, func(tx pgx.Tx) error {
		added, err := h.changeTx(ctx, tx, scope.House)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(added, func(e query.ModelEndpoint) bool { return e.Name == name })
		if at < 0 {
			return nil
		}
		if err := h.q.DeleteModelEndpoint(ctx, tx, scope.House, name); err != nil {
			return err
		}
		return h.dropTx(ctx, tx, added[at])
	})
}

// changeTx returns the servers of a house, which only this transaction changes until it ends.
func (h *Houses) changeTx(ctx context.Context, tx pgx.Tx, house string) ([]query.ModelEndpoint, error) {
	if err := h.refuseBots(ctx, tx); err != nil {
		return nil, err
	}
	if err := h.q.LockModelEndpoints(ctx, tx, house); err != nil {
		return nil, err
	}
	return h.q.ListModelEndpoints(ctx, tx, house)
}

// dropTx deletes the secret that was created for a server that no longer uses it.
func (h *Houses) dropTx(ctx context.Context, tx pgx.Tx, e query.ModelEndpoint) error {
	if !e.KeyMade {
		return nil
	}
	return h.secrets.DropUnusedTx(ctx, tx, e.HouseID, e.SecretName)
}

// secretFor returns the name of the secret for a server's key. The name comes from the server, and neither a secret of
// the house nor another server uses it. A key therefore never replaces another server's key, and an old key is never
// sent to a new address. A server that stays at its address keeps its secret, if no other server uses it.
func secretFor(s Server, added []query.ModelEndpoint, secrets []string) string {
	taken, kept := map[string]bool{}, ""
	for _, e := range added {
		if e.Name == s.Name && e.BaseUrl == s.BaseURL && e.KeyMade {
			kept = e.SecretName
		} else {
			taken[e.SecretName] = true
		}
	}
	if kept != "" && !taken[kept] {
		return kept
	}
	for _, name := range secrets {
		taken[name] = true
	}
	stem := "MODEL_" + strings.ReplaceAll(strings.ToUpper(s.Name), "-", "_") + "_KEY"
	name := stem
	for n := 2; taken[name]; n++ {
		name = stem + "_" + strconv.Itoa(n)
	}
	return name
}
