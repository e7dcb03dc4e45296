package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// memberInvite is the older name of [inviteCreate].
func memberInvite(a *app) *cobra.Command {
	cmd := inviteCreate(a)
	cmd.Use = "invite [NOTE]"
	return cmd
}

func inviteCreate(a *app) *cobra.Command {
	var req arbev1.CreateInviteRequest
	var expires time.Duration
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "create [NOTE]",
		Short: "Print a link with which one person can join a house",
		Long: "Print a link with which one person can join a house. Owners only. It works once; whoever opens it first joins, so\n" +
			"give it to nobody else. It is shown only once. NOTE tells whom it is for; arbe invite list shows it.",
		Example: "  arbe invite create 'for Grace' --role owner",
		Args:    takes(0, 1, "at most one note"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if cmd.Flags().Changed("expires") {
				if expires < time.Minute {
					return fault.New(fault.Invalid, "--expires is shorter than a minute", "give how long the link works, such as 24h, or leave it out")
				}
				req.ExpiresIn = durationpb.New(expires)
			}
			req.Note = firstOf(args)
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			created, err := c.Houses.CreateInvite(ctx, &req)
			if err != nil {
				return err
			}
			t, err := a.target()
			if err != nil {
				return err
			}
			view := createdInviteView{viewInvite(created.GetInvite()), t.URL + created.GetPath()}
			if err := a.show(view.URL, view, func() string { return view.URL }); err != nil {
				return err
			}
			a.say("this is invite %s; it works once, until %s, and is not shown again", view.ID, view.ExpiresAt.Local().Format("2006-01-02 15:04"))
			return nil
		}),
	}
	flags := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	flags.StringVar(&req.Role, "role", "", "role of the person: member or owner (default member)")
	flags.DurationVar(&expires, "expires", 0, "how long the link works, such as 24h (default: the server's)")
	return cmd
}

type createdInviteView struct {
	inviteView
	URL string `json:"url"`
}
