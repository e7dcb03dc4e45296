package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// noCheckFlag adds the flag that sets something although its provider did not confirm it.
func noCheckFlag(cmd *cobra.Command, to *bool, usage string) {
	cmd.Flags().BoolVar(to, "no-check", false, usage)
}

// checkView is the result of testing a key or a server.
type checkView struct {
	Tried   bool   `json:"tried"`
	Models  int32  `json:"models"`
	Summary string `json:"summary"`
}

// viewCheck returns nil if nothing was tested.
func viewCheck(c *arbev1.KeyCheck) *checkView {
	if c == nil {
		return nil
	}
	return &checkView{c.GetTried(), c.GetModels(), c.GetSummary()}
}

// after returns a line with the summary below it.
func (c *checkView) after(line string) string {
	if c == nil {
		return line
	}
	return line + "\n" + entry.Printable(c.Summary)
}

// unverified tells the person that it is unknown whether a model exists.
func (a *app) unverified(why string) {
	if why != "" {
		a.say("not verified: %s", entry.Printable(why))
	}
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
