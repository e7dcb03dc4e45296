package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// completionTime is how long a shell waits for ids before it gets none: a completion that hangs is
// worse than none.
const completionTime = time.Second

// A completer proposes values, each with what it means.
type completer func(ctx context.Context, c *arbe.Client) ([]cobra.Completion, error)

// proposes makes a completer fit cobra. What goes wrong proposes nothing.
func (a *app) proposes(values completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTime)
		defer cancel()
		cmd.SetContext(ctx)
		_ = a.calls(func(ctx context.Context, c *arbe.Client, _ []string) (err error) {
			found, err = values(ctx, c)
			return err
		})(cmd, args)
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// proposesFirst is [app.proposes] for the first argument of a verb only.
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
		panic(err) // the verb has no such flag: a mistake in this program
	}
}

// houses proposes the caller's houses.
func (a *app) houses(ctx context.Context, c *arbe.Client) (found []cobra.Completion, err error) {
	houses, err := allHouses(ctx, c)
	for _, h := range houses {
		found = append(found, cobra.CompletionWithDesc(h.GetId(), oneLine(h.GetName())))
	}
	return found, err
}

// threads proposes the threads that were active last.
func (a *app) threads(ctx context.Context, c *arbe.Client) (found []cobra.Completion, err error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	page, err := c.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: house})
	for _, t := range page.GetThreads() {
		found = append(found, cobra.CompletionWithDesc(t.GetId(), oneLine(t.GetName())))
	}
	return found, err
}

// environments proposes the recipes of the house.
func (a *app) environments(ctx context.Context, c *arbe.Client) (found []cobra.Completion, err error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	page, err := c.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: house})
	for _, e := range page.GetEnvironments() {
		found = append(found, cobra.CompletionWithDesc(e.GetId(), oneLine(e.GetName())))
	}
	return found, err
}
