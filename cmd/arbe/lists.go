package main

import (
	"context"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// This file reads lists page by page, for verbs that show them and for verbs that find a thing in them.

// pages collects all pages of a list. page returns the page at a token, and the token of the next page.
func pages[Row any](page func(token string) (rows []Row, next string, err error)) (all []Row, err error) {
	for token := ""; ; {
		rows, next, err := page(token)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if token = next; token == "" {
			return all, nil
		}
	}
}

func allAgents(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Agent, error) {
	return pages(func(token string) ([]*arbev1.Agent, string, error) {
		page, err := c.Agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetAgents(), page.GetNextPageToken(), err
	})
}

func allBots(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Bot, error) {
	return pages(func(token string) ([]*arbev1.Bot, string, error) {
		page, err := c.Bots.ListBots(ctx, &arbev1.ListBotsRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetBots(), page.GetNextPageToken(), err
	})
}

func allEnvironments(ctx context.Context, c *arbe.Client, house string) (list []*arbev1.Environment, defaultDriver string, err error) {
	list, err = pages(func(token string) ([]*arbev1.Environment, string, error) {
		page, err := c.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: house, PageSize: 200, PageToken: token})
		defaultDriver = page.GetDefaultDriver()
		return page.GetEnvironments(), page.GetNextPageToken(), err
	})
	return list, defaultDriver, err
}

func allHouses(ctx context.Context, c *arbe.Client) ([]*arbev1.House, error) {
	return pages(func(token string) ([]*arbev1.House, string, error) {
		page, err := c.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{PageSize: 200, PageToken: token})
		return page.GetHouses(), page.GetNextPageToken(), err
	})
}

// allInvites returns the invites of a house that can still be used.
func allInvites(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Invite, error) {
	return pages(func(token string) ([]*arbev1.Invite, string, error) {
		page, err := c.Houses.ListInvites(ctx, &arbev1.ListInvitesRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetInvites(), page.GetNextPageToken(), err
	})
}

func allMembers(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Member, error) {
	return pages(func(token string) ([]*arbev1.Member, string, error) {
		page, err := c.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetMembers(), page.GetNextPageToken(), err
	})
}

// keysOf returns the API keys of a house or, without a house, the caller's keys for all houses.
func keysOf(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.APIKey, error) {
	return pages(func(token string) ([]*arbev1.APIKey, string, error) {
		page, err := c.Credentials.ListAPIKeys(ctx, &arbev1.ListAPIKeysRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetApiKeys(), page.GetNextPageToken(), err
	})
}
