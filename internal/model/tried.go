package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Tried is the result of trying a key of models, or a server.
type Tried struct {
	// Not says why nothing was tried; empty if everything that uses the key was tried.
	Not string
	// Endpoints are those that were tried.
	Endpoints []TriedEndpoint
}

// Models returns the number of listed models.
func (t Tried) Models() (models int) {
	for _, e := range t.Endpoints {
		models += len(e.Trial.Models)
	}
	return models
}

// String returns the result as sentences; empty if there was nothing to try.
func (t Tried) String() string {
	if t.Not != "" {
		return "It was not tried: " + t.Not + "."
	}
	var all []string
	for _, e := range t.Endpoints {
		all = append(all, e.String()+".")
	}
	return strings.Join(all, " ")
}

// TriedEndpoint is one endpoint that was tried.
type TriedEndpoint struct {
	Title string
	Trial
	keyed bool
}

// String returns the result, such as "Anthropic accepts the key and lists 9 models".
func (t TriedEndpoint) String() string {
	models, most := "", ""
	if !t.Complete {
		most = "at least "
	}
	switch n := len(t.Trial.Models); n {
	case 0:
	case 1:
		models = "lists " + most + "1 model"
	default:
		models = fmt.Sprintf("lists %s%d models", most, n)
	}
	switch {
	case t.Accepted && models != "":
		return t.Title + " accepts the key and " + models
	case t.Accepted && t.Unlisted == "":
		return t.Title + " accepts the key and lists no model"
	case t.Accepted:
		return t.Title + " accepts the key; its models are not known: " + t.Unlisted
	case models != "":
		return t.Title + " answers and " + models
	case t.keyed:
		return t.Title + " answers, and does not say whether it accepts the key"
	}
	return t.Title + " answers; its models are not known"
}

// keyPages are where people find their keys.
var keyPages = map[Provider]string{
	Anthropic: "https://console.anthropic.com/settings/keys", OpenAI: "https://platform.openai.com/api-keys",
	OpenRouter: "https://openrouter.ai/settings/keys", Google: "https://aistudio.google.com/apikey",
}

// verdict returns the error of an endpoint that was tried. field is the name of the request's field with the key.
func verdict(e Endpoint, field string, err error) error {
	failed, is := errors.AsType[*Error](err)
	switch {
	case !is:
		return err
	case failed.Kind == BadKey && e.Key == "":
		return fault.Newf(fault.Invalid, "give its key; store it with: arbe secret set NAME, and add --key NAME; nothing was changed", "key: %s wants one%s", e.Title(), because(failed.Said)).Because(err)
	case failed.Kind == BadKey:
		next := "copy the whole key"
		if page := keyPages[e.Provider]; page != "" {
			next += " from " + page
		}
		return fault.Newf(fault.Invalid, next+", and set it again; nothing was changed", "%s: %s does not accept the key%s", field, e.Title(), because(failed.Said)).Because(err)
	}
	return fault.Newf(fault.Unavailable, "nothing was changed; try again, or correct the address; "+untried, "%s could not be tried: %s", e.Title(), failed.fault.Message).Because(err)
}

func because(said string) string {
	if said == "" {
		return ""
	}
	return ": " + said
}

// addedForPeople returns the servers of the scope's house, and refuses bots.
func (h *Houses) addedForPeople(ctx context.Context, scope db.Scope) (added []query.ModelEndpoint, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := h.refuseBots(ctx, tx); err != nil {
			return err
		}
		added, err = h.q.ListModelEndpoints(ctx, tx, scope.House)
		return err
	})
	return added, err
}

// try tries endpoints, all at once.
func (h *Houses) try(ctx context.Context, scope db.Scope, field string, ask ...Endpoint) (tried Tried, err error) {
	if err := h.tries.take(scope); err != nil {
		return Tried{}, err
	}
	tried.Endpoints = make([]TriedEndpoint, len(ask))
	failed := make([]error, len(ask))
	var each sync.WaitGroup
	for i, e := range ask {
		each.Go(func() {
			trial, err := h.ask.Try(ctx, e)
			if err != nil {
				failed[i] = verdict(e, field, err)
				return
			}
			tried.Endpoints[i] = TriedEndpoint{Title: e.Title(), Trial: trial, keyed: e.Key != ""}
			if trial.Unlisted == "" {
				h.lists.put(scope.House, e, trial.Listing)
			}
		})
	}
	each.Wait()
	// A verdict comes before an endpoint that could not be asked.
	for _, one := range failed {
		if err == nil || fault.CodeOf(one) == fault.Invalid {
			err = cmp.Or(one, err)
		}
	}
	if err != nil {
		return Tried{}, err
	}
	return tried, nil
}

func (h *Houses) refuseBots(ctx context.Context, tx pgx.Tx) error {
	bot, err := h.q.BotChangesModels(ctx, tx)
	if err == nil && bot {
		return fault.New(fault.Forbidden, "bots may not change where models are", "ask a person of the house")
	}
	return err
}
