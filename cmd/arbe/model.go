package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func model(a *app) *cobra.Command {
	return group(a, "model", "List the models of a house, and choose its default", modelList, modelDefault, modelFallback, modelAdd, modelRemove)
}

// modelRefs proposes models that the house can use.
func (a *app) modelRefs(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	list, err := a.models(ctx, c, "")
	for _, e := range list.GetEndpoints() {
		ids := e.GetModels()
		if len(ids) == 0 && e.GetDefaultModel() != "" {
			ids = []string{e.GetDefaultModel()}
		}
		for _, id := range ids {
			found = append(found, thing{id: e.GetName() + "/" + id})
		}
	}
	return found, err
}

// ownEndpoints proposes the endpoints that the house added.
func (a *app) ownEndpoints(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	list, err := a.models(ctx, c, "")
	for _, e := range list.GetEndpoints() {
		if e.GetProvider() == "compatible" {
			found = append(found, thing{id: e.GetName()})
		}
	}
	return found, err
}

func (a *app) models(ctx context.Context, c *arbe.Client, house string) (*arbev1.ListModelsResponse, error) {
	in, err := a.inHouse(ctx, c, house)
	if err != nil {
		return nil, err
	}
	return c.Models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: in})
}
