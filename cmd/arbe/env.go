package main

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// getEnvironment returns the environment that a person named.
func (a *app) getEnvironment(ctx context.Context, c *arbe.Client, ref string) (*arbev1.Environment, error) {
	id, err := a.find(ctx, c, environmentKind, "", ref)
	if err != nil {
		return nil, err
	}
	got, err := c.Environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: id})
	return got.GetEnvironment(), err
}

type environmentView struct {
	ID      string    `json:"id"`
	HouseID string    `json:"house_id"`
	Name    string    `json:"name"`
	Config  recipe    `json:"config"`
	Created time.Time `json:"created_at"`
}

func viewEnvironment(e *arbev1.Environment) environmentView {
	return environmentView{e.GetId(), e.GetHouseId(), e.GetName(), recipeOf(e.GetConfig()), e.GetCreatedAt().AsTime()}
}
