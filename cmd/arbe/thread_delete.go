package main

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadDelete has no default thread, because an irreversible action needs an explicit name.
func threadDelete(a *app) *cobra.Command {
	var yes, ignoreNotFound bool
	cmd := &cobra.Command{
		Use:   "delete THREAD",
		Short: "Delete a thread with its log and its children",
		Long: "Delete a thread with its log and its children; its forks keep the shared log. This cannot be undone. On a\n" +
			"terminal it asks first. A thread that does not exist is an error, unless --ignore-not-found makes\n" +
			"a repeated deletion succeed.",
		Args:              takes(1, 1, "one thread, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			th, err := a.getThread(ctx, c, args[0])
			id := first(th.GetId(), args[0])
			gone := fault.CodeOf(err) == fault.NotFound || connect.CodeOf(err) == connect.CodeNotFound
			switch {
			case gone && ignoreNotFound:
				a.say("there is no thread %q: nothing was deleted", id)
				return a.show(id, deletedView{id, false}, func() string { return "nothing to delete" })
			case err != nil:
				return err
			}
			if err := a.confirm(ctx, yes, "delete thread %s (%s) with its log and its children?", id, entry.PrintableLine(title(th))); err != nil {
				return err
			}
			if _, err := c.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: id}); err != nil {
				return err
			}
			return a.show(id, deletedView{id, true}, func() string { return "deleted " + id })
		}),
	}
	cmd.Flags().BoolVar(&ignoreNotFound, "ignore-not-found", false, "succeed when there is no such thread")
	destroys(cmd, &yes, "")
	return cmd
}
