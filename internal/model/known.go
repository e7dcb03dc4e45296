package model

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// List asks the endpoints whose models are not known yet, and fills in their lists. It waits for two seconds at most.
// For an endpoint that takes longer, or cannot be asked, it leaves m unchanged.
func (h *Houses) List(ctx context.Context, house string, m *Models) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	var each sync.WaitGroup
	for i := range m.Found {
		f := &m.Found[i]
		if f.Problem != nil {
			continue
		}
		each.Go(func() {
			if list, err := h.lists.get(ctx, house, f.Endpoint, listFresh); err == nil && len(list.Models) > 0 {
				f.Models = list.Models
			}
		})
	}
	each.Wait()
}

// CheckModel reports whether a model exists that a house is about to use. The error is a [fault.Invalid] if the ref is
// wrong, names an endpoint that the house does not have, or a model that its endpoint does not list. unverified says
// why it is unknown whether the model exists; empty if it exists.
//
// It asks the endpoint if its list is not known, for five seconds at most.
func (h *Houses) CheckModel(ctx context.Context, house, model string) (ref Ref, unverified string, err error) {
	m, err := h.Models(ctx, house)
	if err != nil {
		return Ref{}, "", err
	}
	return h.check(ctx, house, m, model)
}

func (h *Houses) check(ctx context.Context, house string, m Models, model string) (ref Ref, unverified string, err error) {
	if ref, err = ParseRef(model, m.names()...); err != nil {
		return Ref{}, "", err
	}
	f, problem := m.find(ref)
	if problem != nil {
		return ref, f.why(problem), nil
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

// why says why an endpoint cannot be used.
func (f Found) why(problem error) string {
	if f.Endpoint.Shared { // the operator must fix it
		return f.Endpoint.Title() + " cannot be used now"
	}
	return fault.From(problem).Message
}

// Admit returns the endpoint at which a house may call a model, and records the use of the secret with the key. The
// error is a [fault.Error] for people of the house: a [fault.NotFound] if, as far as is known within two seconds, the
// house has no such model.
func (h *Houses) Admit(ctx context.Context, house, model string) (Endpoint, Ref, error) {
	m, err := h.Models(ctx, house)
	if err != nil {
		return Endpoint{}, Ref{}, err
	}
	missing := func(err error) error {
		f := fault.From(err)
		return fault.New(fault.NotFound, f.Message, f.Next)
	}
	ref, err := ParseRef(model, m.names()...)
	if err != nil {
		return Endpoint{}, Ref{}, missing(err)
	}
	f, err := m.find(ref)
	if f.Endpoint.Name == "" {
		return Endpoint{}, Ref{}, missing(err)
	} else if err != nil {
		return Endpoint{}, Ref{}, err
	}
	asking, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	if _, _, err := h.check(asking, house, m, model); fault.CodeOf(err) == fault.Invalid {
		return Endpoint{}, Ref{}, missing(err)
	}
	if f.Secret != "" {
		if err := h.secrets.Used(ctx, house, f.Secret); err != nil {
			return Endpoint{}, Ref{}, err
		}
	}
	return f.Endpoint, ref, nil
}
