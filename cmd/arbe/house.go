package main

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// houseKind is looked up without a house, by [app.inHouse].
var houseKind = kind{noun: "house", plural: "houses", list: "arbe house list"}

func (a *app) houseFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "house", "", "house to work in, by id or name (default $ARBE_HOUSE, or your only one)")
	a.completes(cmd, "house", a.houses)
}

// inHouse returns the id of the house that a verb works in: the named house, or the caller's only house.
func (a *app) inHouse(ctx context.Context, c *arbe.Client, flag string) (string, error) {
	ref := first(flag, a.getenv("ARBE_HOUSE"))
	if shortID.MatchString(ref) {
		return ref, nil
	}
	houses, err := allHouses(ctx, c)
	if ref != "" && connect.CodeOf(err) == connect.CodePermissionDenied {
		return ref, nil // no error here, because the verb's own call explains better what the credential may do
	} else if ref != "" && err == nil {
		return houseKind.pick(ref, things(houses))
	}
	switch {
	case err != nil:
		return "", err
	case len(houses) == 1:
		return houses[0].GetId(), nil
	case len(houses) == 0:
		return "", fault.New(fault.Precondition, "you are in no house yet", "make one with: arbe house create NAME, or ask an owner of one to invite you")
	}
	names := make([]string, len(houses))
	for i, h := range houses {
		names[i] = fmt.Sprintf("%s (%s)", h.GetId(), h.GetName())
	}
	return "", fault.New(fault.Invalid, "you are in several houses: "+strings.Join(names, ", "), "say which one with --house, or set ARBE_HOUSE")
}
