package model

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/secret"
)

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
	uses := map[string][]secret.Use{}
	err = eachUse(ctx, tx, house, chosen, func(ref string, u secret.Use) {
		if name := keyOf(ref, added); name != "" {
			uses[name] = append(uses[name], u)
		}
	})
	return uses, err
}

// keyOf returns the secret with the key of a model, or "".
func keyOf(ref string, added []query.ModelEndpoint) string {
	endpoint, _, _ := strings.Cut(ref, "/")
	for _, e := range added {
		if e.Name == endpoint {
			return e.SecretName
		}
	}
	return KeySecret(Provider(endpoint))
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

// Uses returns the uses of an endpoint's models in the scope's house: the default, fallbacks and bots.
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
