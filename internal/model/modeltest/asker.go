package modeltest

import (
	"context"

	"github.com/arbe-dev/arbe/internal/model"
)

// asker is a [model.Asker].
type asker struct {
	client *model.Client
	server *Server
}

// Asker returns an Asker that asks this server about keys and models instead of any other server, including providers.
func (s *Server) Asker() model.Asker { return asker{new(model.Client), s} }

func (a asker) Models(ctx context.Context, e model.Endpoint) (model.Listing, error) {
	return a.client.Models(ctx, a.at(e))
}

func (a asker) Try(ctx context.Context, e model.Endpoint) (model.Trial, error) {
	return a.client.Try(ctx, a.at(e))
}

func (a asker) at(e model.Endpoint) model.Endpoint {
	e.BaseURL, e.Trusted = a.server.URL, true
	if e.Dialect == model.Chat || e.Dialect == model.Responses {
		e.BaseURL += "/v1"
	}
	return e
}
