package main

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadCreate(a *app) *cobra.Command {
	var req arbev1.CreateThreadRequest
	var another bool
	cmd := &cobra.Command{
		Use:   "create [PARENT]",
		Short: "Create a thread",
		Long: "Create a thread. PARENT is its place: the id or name of a house; the id or name of a thread, for a child of\n" +
			"it; or the @handle of a bot or the id of an agent, for a direct message. Without PARENT, the thread is in your\n" +
			"house.\n\n" +
			"An open direct message to a bot is reused, unless you ask for a new one, or give it an id or a name.",
		Example: "  arbe thread create --name 'fix the build'\n" +
			"  id=$(arbe thread create -q)\n" +
			"  arbe thread create @arbe",
		Args:              takes(0, 1, "at most one parent"),
		ValidArgsFunction: a.proposesFirst(a.threadsAndBots),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if err := a.place(ctx, c, firstOf(args), &req); err != nil {
				return err
			}
			if err := a.namedInHouse(ctx, c, &req); err != nil {
				return err
			}
			req.Reuse = req.ParentAgentId != "" && !another && req.Id == "" && req.Name == ""
			created, err := c.Threads.CreateThread(ctx, &req)
			if err != nil {
				return err
			}
			t := created.GetThread()
			return a.show(t.GetId(), export.ViewThread(t), t.GetId)
		}),
	}
	flags := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	flags.StringVar(&req.Id, "id", "", "an id of your choice, so that a retry creates nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	flags.StringVar(&req.Name, "name", "", "its title")
	flags.StringVar(&req.EnvironmentId, "env", "", "environment of its sandbox, by id or name (default: the house's)")
	flags.StringVar(&req.AgentId, "agent", "", "bot that drives it, by id or name")
	flags.StringSliceVar(&req.Tags, "tag", nil, "a label (may be repeated)")
	flags.BoolVar(&req.Pinned, "pin", false, "pin it")
	flags.BoolVar(&another, "new", false, "begin a new direct message, even if there is one")
	a.completes(cmd, "env", a.environments)
	a.completes(cmd, "agent", a.agents)
	return cmd
}

// namedInHouse replaces the names of an environment and a bot in req by their ids.
func (a *app) namedInHouse(ctx context.Context, c *arbe.Client, req *arbev1.CreateThreadRequest) (err error) {
	if req.EnvironmentId != "" {
		if req.EnvironmentId, err = a.find(ctx, c, environmentKind, req.HouseId, req.EnvironmentId); err != nil {
			return err
		}
	}
	if req.AgentId != "" {
		req.AgentId, err = a.find(ctx, c, agentKind, req.HouseId, req.AgentId)
	}
	return err
}

// place sets where a new thread will be. A bot is recognized by its @handle, an agent by its uuid, and a house as one of the
// caller's houses. Anything else is a thread, whose house the new thread shares.
func (a *app) place(ctx context.Context, c *arbe.Client, parent string, req *arbev1.CreateThreadRequest) (err error) {
	if strings.HasPrefix(parent, "@") {
		if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
			return err
		}
		req.ParentAgentId, err = a.find(ctx, c, addresseeKind, req.HouseId, parent)
		return err
	}
	if parent != "" && uuid.Validate(parent) != nil {
		houses, err := allHouses(ctx, c)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(houses, func(h *arbev1.House) bool { return h.GetId() == parent || h.GetName() == parent }); i >= 0 {
			req.HouseId = houses[i].GetId()
			return nil
		}
		above, err := a.getThread(ctx, c, parent)
		if strings.ContainsRune(parent, ' ') && fault.CodeOf(err) == fault.NotFound { // it may be meant as the new thread's name
			return fault.Newf(fault.NotFound, "to create a thread with this name, use --name", "there is no thread or house named %q", parent)
		} else if err != nil {
			return err
		}
		req.HouseId, req.ParentThreadId = above.GetHouseId(), above.GetId()
		return nil
	}
	req.ParentAgentId = parent
	req.HouseId, err = a.inHouse(ctx, c, req.HouseId)
	return err
}
