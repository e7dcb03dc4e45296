package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// completionTime limits how long a shell waits for proposals. No completion is better than one that hangs.
const completionTime = time.Second

// completer returns the things that a shell may propose.
type completer func(ctx context.Context, c *arbe.Client) ([]thing, error)

// proposes adapts a completer to cobra: it proposes ids with descriptions, and unique names. After an error it proposes
// nothing, because a shell would show the error in the middle of the command line.
func (a *app) proposes(values completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTime)
		defer cancel()
		cmd.SetContext(ctx)
		_ = a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			all, err := values(ctx, c)
			found = proposals(all, typed)
			return err
		})(cmd, args)
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// proposals returns the ids and names that begin with the typed text. Before anything is typed, it proposes only ids, because
// each comes with its name.
func proposals(all []thing, typed string) (found []cobra.Completion) {
	for _, t := range all {
		if strings.HasPrefix(t.id, typed) {
			found = append(found, cobra.CompletionWithDesc(t.id, entry.PrintableLine(t.name)))
		}
	}
	if typed == "" {
		return found
	}
	for i, t := range all {
		same := func(other thing) bool { return other.name == t.name }
		unique := slices.IndexFunc(all, same) == i && !slices.ContainsFunc(all[i+1:], same)
		if unique && strings.HasPrefix(t.name, typed) && entry.PrintableLine(t.name) == t.name {
			found = append(found, cobra.CompletionWithDesc(t.name, t.id))
		}
	}
	return found
}

// proposesFirst is like [app.proposes], but only for the first argument of a verb.
func (a *app) proposesFirst(values completer) cobra.CompletionFunc {
	first := a.proposes(values)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, typed)
	}
}

// completes makes a flag propose values.
func (a *app) completes(cmd *cobra.Command, flag string, values completer) {
	if err := cmd.RegisterFlagCompletionFunc(flag, a.proposes(values)); err != nil {
		panic(err) // a mistake in this program: the verb has no such flag
	}
}

func (a *app) houses(ctx context.Context, c *arbe.Client) ([]thing, error) {
	houses, err := allHouses(ctx, c)
	return things(houses), err
}

// threads proposes the most recently active threads.
func (a *app) threads(ctx context.Context, c *arbe.Client) ([]thing, error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	page, err := c.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house, PageSize: 200})
	return things(page.GetThreads()), err
}

func (a *app) environments(ctx context.Context, c *arbe.Client) ([]thing, error) {
	return a.ofHouse(ctx, c, environmentsOf)
}

// sandboxes proposes the house's sandboxes, except deleted ones.
func (a *app) sandboxes(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	page, err := c.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: house, PageSize: 200})
	for _, s := range page.GetSandboxes() {
		if s.GetDestroyedAt() == nil {
			found = append(found, thing{id: s.GetId()})
		}
	}
	return found, err
}

func (a *app) agents(ctx context.Context, c *arbe.Client) ([]thing, error) {
	return a.ofHouse(ctx, c, agentsOf)
}

// bots proposes the handles of the house's bots.
func (a *app) bots(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	all, err := allBots(ctx, c, house)
	for _, b := range all {
		found = append(found, thing{"@" + b.GetHandle(), b.GetName()})
	}
	return found, err
}

// threadsAndBots proposes threads, and bots that can receive direct messages.
func (a *app) threadsAndBots(ctx context.Context, c *arbe.Client) ([]thing, error) {
	threads, err := a.threads(ctx, c)
	if err != nil {
		return nil, err
	}
	bots, err := a.bots(ctx, c)
	return append(threads, bots...), err
}

// invites proposes the invites of the house that can be used.
func (a *app) invites(ctx context.Context, c *arbe.Client) ([]thing, error) {
	return a.ofHouse(ctx, c, invitesOf)
}

// ofHouse returns things of the current house.
func (a *app) ofHouse(ctx context.Context, c *arbe.Client, in func(ctx context.Context, c *arbe.Client, house, ref string) ([]thing, error)) ([]thing, error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	return in(ctx, c, house, "")
}
