package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func keyCreate(a *app) *cobra.Command {
	var req arbev1.CreateAPIKeyRequest
	var expires time.Duration
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key for one house",
		Long: "Create an API key for one house, and print it. It is shown only once: the server keeps no copy. An\n" +
			"owner may make one for a bot of the house. A key for one house cannot create other keys.",
		Example: "  export ARBE_TOKEN=$(arbe key create ci --expires 720h -q)",
		Args:    takes(1, 1, "a name, which says what the key is for"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req.Name = args[0]
			if cmd.Flags().Changed("expires") {
				if expires <= 0 {
					return fault.New(fault.Invalid, "--expires is not above 0", "give how long the key is valid, such as 720h, or leave it out")
				}
				req.ExpiresAt = timestamppb.New(time.Now().Add(expires))
			}
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			if req.AgentId != "" {
				if req.AgentId, err = a.find(ctx, c, agentKind, req.HouseId, req.AgentId); err != nil {
					return err
				}
			}
			made, err := c.Credentials.CreateAPIKey(ctx, &req)
			if err != nil {
				return err
			}
			view := createdKeyView{viewKey(made.GetApiKey()), made.GetKey()}
			if err := a.show(view.Key, view, func() string { return view.Key }); err != nil {
				return err
			}
			a.say("this is key %s; it is not shown again", view.ID)
			return nil
		}),
	}
	flags := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	flags.StringVar(&req.AgentId, "agent", "", "bot that will use it, by id or name (default: you)")
	a.completes(cmd, "agent", a.agents)
	flags.DurationVar(&expires, "expires", 0, "how long it is valid, such as 720h (default: until it is revoked)")
	flags.StringVar(&req.Id, "id", "", "an id of your choice, so that a retry creates nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	return cmd
}

type createdKeyView struct {
	keyView
	Key string `json:"key"`
}
