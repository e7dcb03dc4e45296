package model

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

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
