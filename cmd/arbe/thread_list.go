package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadList(a *app) *cobra.Command {
	var req arbev1.ListThreadsRequest
	var limit int
	var watch bool
	var status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the threads of a house: pinned ones first, then the most recently active",
		Long: "List the threads of a house: pinned ones first, then the most recently active. With --watch the\n" +
			"list is kept up to date until Ctrl-C. Into a pipe, a thread is printed again whenever it changes; with\n" +
			"--json, as an object: {\"thread\": …}, or {\"gone\": ID} when it leaves the list.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) (err error) {
			if limit < 0 {
				return fault.New(fault.Invalid, "--limit is negative", "give how many threads to list, or 0 for all")
			}
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			for _, named := range []*string{&req.ParentThreadId, &req.ForkedFromThreadId} {
				if *named != "" {
					if *named, err = a.find(ctx, c, threadKind, req.GetHouseId(), *named); err != nil {
						return err
					}
				}
			}
			if req.Status, err = threadStatus(status); err != nil {
				return err
			}
			if watch {
				return a.watchThreads(ctx, c, &req, limit)
			}
			threads, more, err := listThreads(ctx, c, &req, limit)
			if err != nil {
				return err
			}
			if err := a.listOfThreads(threads); err != nil {
				return err
			}
			if more {
				a.say("there are more; --limit 0 lists all")
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	flags.StringVar(&req.ParentThreadId, "parent", "", "only children of this thread")
	flags.StringVar(&req.ForkedFromThreadId, "forks-of", "", "only forks of this thread")
	flags.StringVar(&req.Tag, "tag", "", "only threads with this label")
	flags.StringVar(&status, "status", "", "only threads with this status")
	flags.IntVar(&limit, "limit", 50, "the most to list; 0 means all")
	flags.BoolVarP(&watch, "watch", "w", false, "keep the list up to date until Ctrl-C")
	a.completes(cmd, "parent", a.threads)
	a.completes(cmd, "forks-of", a.threads)
	return cmd
}

// threadStatus returns the status of a thread that a person named.
func threadStatus(word string) (arbev1.ThreadStatus, error) {
	status, ok := arbev1.FromWord[arbev1.ThreadStatus](word)
	if !ok {
		return 0, fault.Newf(fault.Invalid, "use one of: "+strings.Join(arbev1.Words[arbev1.ThreadStatus](), ", "), "status: %q is not a status", word)
	}
	return status, nil
}
