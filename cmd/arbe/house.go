package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func house(a *app) *cobra.Command {
	return group(a, "house", "See your houses", houseList)
}

// allHouses returns every house of the caller's.
func allHouses(ctx context.Context, c *arbe.Client) ([]*arbev1.House, error) {
	var all []*arbev1.House
	for req := (&arbev1.ListHousesRequest{PageSize: 200}); ; {
		page, err := c.Houses.ListHouses(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetHouses()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// houseFlag gives a verb --house.
func (a *app) houseFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "house", "", "house to work in (default $ARBE_HOUSE, or your only one)")
	a.completes(cmd, "house", a.houses)
}

// inHouse is the house a verb works in: the one that is named, or the only one there is.
func (a *app) inHouse(ctx context.Context, c *arbe.Client, flag string) (string, error) {
	if id := first(flag, a.getenv("ARBE_HOUSE")); id != "" {
		return id, nil
	}
	houses, err := allHouses(ctx, c)
	switch {
	case err != nil:
		return "", err
	case len(houses) == 1:
		return houses[0].GetId(), nil
	case len(houses) == 0:
		return "", fault.New(fault.Precondition, "you are in no house yet", "ask an owner to add you to one")
	}
	names := make([]string, len(houses))
	for i, h := range houses {
		names[i] = fmt.Sprintf("%s (%s)", h.GetId(), h.GetName())
	}
	return "", fault.New(fault.Invalid, "you are in several houses: "+strings.Join(names, ", "), "say which one with --house, or set ARBE_HOUSE")
}
