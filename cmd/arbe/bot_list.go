package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func botList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the bots of a house",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			bots, err := allBots(ctx, c, in)
			if err != nil {
				return err
			}
			rows := make([]row, len(bots))
			for i, b := range bots {
				rows[i] = row{b.GetId(), viewBot(b), []string{"@" + b.GetHandle(), b.GetName(), first(b.GetModel(), "-"), b.GetRuntime(), b.GetId()}}
			}
			return a.list([]string{"HANDLE", "NAME", "MODEL", "RUNTIME", "ID"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
