package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadReact(a *app) *cobra.Command {
	remove := false
	cmd := &cobra.Command{
		Use:   "react [THREAD] ENTRY EMOJI",
		Short: "React to a message or a command with an emoji",
		Long: "React to a message or a command of a thread with a single emoji. ENTRY is its position, such as 12, or its id. A reaction wakes no\n" +
			"bot, and needs nobody. THREAD defaults to $ARBE_THREAD.",
		Example: "  arbe thread react th4w7q2m9x 12 👍\n  arbe thread react th4w7q2m9x 12 👍 --remove",
		Args:    takes(2, 3, "an entry and an emoji"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			ref := ""
			if len(args) == 3 {
				ref, args = args[0], args[1:]
			}
			thread, err := a.threadID(ctx, c, ref)
			if err != nil {
				return err
			}
			id, err := entryID(ctx, c, thread, args[0])
			if err != nil {
				return err
			}
			res, err := c.Entries.React(ctx, &arbev1.ReactRequest{ThreadId: thread, EntryId: id, Emoji: args[1], Remove: remove})
			if err != nil {
				return err
			}
			e := res.GetEntry()
			return a.show(e.GetId(), export.ViewEntry(e), func() string {
				return fmt.Sprintf("entry %d of thread %s: %s", e.GetSeq(), thread, first(export.Reactions(e.GetState()), "no reactions"))
			})
		}),
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take the reaction back")
	return cmd
}

// entryID returns the id of an entry that a person named by its position or its id.
func entryID(ctx context.Context, c *arbe.Client, thread, ref string) (string, error) {
	seq, err := strconv.ParseInt(strings.TrimPrefix(ref, "#"), 10, 64)
	if err != nil || seq < 1 {
		return ref, nil
	}
	res, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, After: seq - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(res.GetEntries()) == 0 {
		return "", fault.Newf(fault.NotFound, "list them with: arbe thread entries list "+thread, "the thread has no entry %d", seq)
	}
	return res.GetEntries()[0].GetId(), nil
}
