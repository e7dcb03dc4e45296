package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func botDelete(a *app) *cobra.Command {
	var yes bool
	var house string
	cmd := &cobra.Command{
		Use:   "delete BOT",
		Short: "Delete a bot",
		Long: "Delete a bot: it answers no more, and its policies and API keys are deleted. What it wrote stays, and so do\n" +
			"its direct messages. On a terminal it asks first.",
		Args:              takes(1, 1, "one bot, by @handle, id or name"),
		ValidArgsFunction: a.proposesFirst(a.bots),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			b, err := a.getBot(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "delete bot @%s (%s)?", b.GetHandle(), oneLine(b.GetName())); err != nil {
				return err
			}
			if _, err := c.Bots.DeleteBot(ctx, &arbev1.DeleteBotRequest{HouseId: b.GetHouseId(), Id: b.GetId()}); err != nil {
				return err
			}
			return a.show(b.GetId(), deletedView{b.GetId(), true}, func() string { return "deleted @" + b.GetHandle() })
		}),
	}
	a.houseFlag(cmd, &house)
	yesFlag(cmd, &yes)
	return cmd
}
