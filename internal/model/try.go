package model

import (
	"context"

	"github.com/arbe-dev/arbe/db"
)

// TryKey tries the value that a secret of the scope's house is about to get, at each endpoint that has its key in that
// secret, and at none if skip is set. It changes nothing. If an endpoint does not accept the value, the error is a
// [fault.Invalid] with the provider's words; if one cannot be asked, a [fault.Unavailable]. Callers let only owners try
// keys; TryKey itself refuses bots, and anybody who tries too often.
//
// A secret that is not a key of models is not tried.
func (h *Houses) TryKey(ctx context.Context, scope db.Scope, name, value string, skip bool) (Tried, error) {
	if err := CheckSecret(name, value); err != nil {
		return Tried{}, err
	}
	var ask []Endpoint
	for _, k := range keyNames {
		if k.secret == name {
			ask = append(ask, Endpoint{Provider: k.provider, Key: value, KeyName: name}.withDefaults())
		}
	}
	added, err := h.addedForPeople(ctx, scope)
	if err != nil {
		return Tried{}, err
	}
	for _, a := range added {
		if a.SecretName == name {
			e := h.endpoint(a, value)
			if err := e.Check(); err != nil {
				return Tried{}, err
			}
			ask = append(ask, e)
		}
	}
	if len(ask) == 0 || skip {
		tried := Tried{}
		if len(ask) > 0 {
			tried.Not = wanted
		}
		return tried, nil
	}
	return h.try(ctx, scope, "value", ask...)
}

// MayTry counts a try of another key than those of models towards the limit; see [Houses.TryKey].
func (h *Houses) MayTry(scope db.Scope) error { return h.tries.take(scope) }
