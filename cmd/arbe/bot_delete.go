package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func botDelete(a *app) *cobra.Command {
	var yes bool
	var house string
	cmd := &cobra.Command{
		Use:   "delete BOT",
		Short: "Delete a bot",
		Long: "Delete a bot: what it is doing stops, it no longer answers, and its policies and API keys are deleted. What it\n" +
			"wrote stays, and its direct messages can still be read. On a terminal it asks first, and says how many turns stop.",
		Args:              takes(1, 1, "one bot, by @handle, id or name"),
		ValidArgsFunction: a.proposesFirst(a.bots),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			b, _, err := a.getBot(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			got, err := c.Bots.GetBot(ctx, &arbev1.GetBotRequest{HouseId: b.GetHouseId(), Which: &arbev1.GetBotRequest_Id{Id: b.GetId()}})
			if err != nil {
				return err
			}
			stops := ""
			if n := int(got.GetTurnsAtWork()); n > 0 {
				stops = " and stop " + turnsOf(n)
			}
			if err := a.confirm(ctx, yes, "delete bot @%s (%s)%s? Its direct messages stay.", b.GetHandle(), entry.PrintableLine(b.GetName()), stops); err != nil {
				return err
			}
			done, err := c.Bots.DeleteBot(ctx, &arbev1.DeleteBotRequest{HouseId: b.GetHouseId(), Id: b.GetId()})
			if err != nil {
				return err
			}
			view := deletedBotView{deletedView{b.GetId(), true}, done.GetStoppedTurns()}
			return a.show(b.GetId(), view, func() string {
				if n := int(done.GetStoppedTurns()); n > 0 {
					return "deleted @" + b.GetHandle() + ", and stopped " + turnsOf(n)
				}
				return "deleted @" + b.GetHandle()
			})
		}),
	}
	a.houseFlag(cmd, &house)
	destroys(cmd, &yes, "")
	return cmd
}

// turnsOf describes the number of a bot's turns.
func turnsOf(n int) string {
	if n == 1 {
		return "the turn that it is working on"
	}
	return fmt.Sprintf("the %d turns that it is working on", n)
}

type deletedBotView struct {
	deletedView
	StoppedTurns int32 `json:"stopped_turns"`
}
