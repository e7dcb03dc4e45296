package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envAllow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "allow ENV HOST...",
		Short: "Let the sandboxes of an environment reach more hosts",
		Long: "Let the sandboxes of an environment reach more hosts: example.com at the ports 80 and 443, example.com:22 at\n" +
			"that port, *.example.com for all names below it. This applies at once to sandboxes on the server's own\n" +
			"machine, and to others from their next command on.",
		Example:           "  arbe env allow default example.com git.example.com:22",
		Args:              takes(2, math.MaxInt, "an environment, by id or name, and one or more hosts"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			e, err := a.getEnvironment(ctx, c, args[0])
			if err != nil {
				return err
			}
			updated, err := c.Environments.AllowHosts(ctx, &arbev1.AllowHostsRequest{Id: e.GetId(), Hosts: args[1:]})
			if err != nil {
				return err
			}
			e = updated.GetEnvironment()
			return a.show(e.GetId(), viewEnvironment(e), func() string {
				return fmt.Sprintf("%s (%s) reaches %s", e.GetId(), entry.PrintableLine(e.GetName()), strings.Join(args[1:], ", "))
			})
		}),
	}
}
