package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func agent(a *app) *cobra.Command {
	return group(a, "agent", "List the people and bots of a house, and create bots", agentList, agentCreate)
}

func allAgents(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Agent, error) {
	return pages(func(token string) ([]*arbev1.Agent, string, error) {
		page, err := c.Agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetAgents(), page.GetNextPageToken(), err
	})
}
