package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
)

func botShow(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:               "show BOT",
		Short:             "Show a bot, as arbe bot edit reads it",
		Args:              takes(1, 1, "one bot, by @handle, id or name"),
		ValidArgsFunction: a.proposesFirst(a.bots),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			b, note, err := a.getBot(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			a.note(note)
			f, err := fileOf(b)
			if err != nil {
				return err
			}
			text, err := f.text()
			if err != nil {
				return err
			}
			return a.show(b.GetId(), viewBot(b), func() string { return entry.Printable(string(text)) })
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
