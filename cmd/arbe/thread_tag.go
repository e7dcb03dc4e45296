package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadTag(a *app) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "tag THREAD TAG…",
		Short: "Add tags to a thread, or remove them",
		Long: "Add tags to a thread or, with --remove, remove them. Adding a tag that it has, or removing one that it\n" +
			"does not have, changes nothing.",
		Example: "  arbe thread tag th4w7q2m9xab ci urgent\n" +
			"  arbe thread tag th4w7q2m9xab urgent --remove",
		Args:              takes(2, 1000, "a thread and at least one tag"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, args[0])
			if err != nil {
				return err
			}
			found, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: id})
			if err != nil {
				return err
			}
			tags := found.GetThread().GetTags()
			for _, tag := range args[1:] {
				has := slices.Contains(tags, tag)
				switch {
				case remove:
					tags = slices.DeleteFunc(tags, func(t string) bool { return t == tag })
				case !has:
					tags = append(tags, tag)
				}
			}
			done := "tagged"
			if remove {
				done = "untagged"
			}
			return a.updateThread(ctx, c, &arbev1.UpdateThreadRequest{Id: id, Tags: &arbev1.Tags{Values: tags}}, done)
		}),
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the tags")
	return cmd
}
