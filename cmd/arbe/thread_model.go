package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadModel(a *app) *cobra.Command {
	var think string
	var reset, noCheck bool
	cmd := &cobra.Command{
		Use:   "model THREAD [MODEL]",
		Short: "Use another model in a thread, or let it think harder",
		Long: "Use another model in a thread than its bots use elsewhere, or let it think harder or less. This applies to the next\n" +
			"turns of bots in the thread, and the model also for the next run of a coding agent.",
		Example: "  arbe thread model th4w7q2m9xab anthropic/claude-opus-4-8\n" +
			"  arbe thread model th4w7q2m9xab --think high\n" +
			"  arbe thread model th4w7q2m9xab --reset",
		Args:              takes(1, 2, "a thread, and a model as provider/model"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if set := len(args) == 2 || think != ""; set == reset {
				return fault.New(fault.Invalid, "the command does not say what to change", "give a model, --think or both; or --reset alone")
			}
			id, err := a.threadID(ctx, c, args[0])
			if err != nil {
				return err
			}
			req := &arbev1.UpdateThreadRequest{Id: id, SkipModelCheck: noCheck}
			if len(args) == 2 {
				req.Model = &args[1]
			}
			if think != "" {
				req.Think = &think
			}
			if reset {
				req.Model, req.Think = new(""), new("")
			}
			return a.updateThread(ctx, c, req, "changed")
		}),
	}
	cmd.Flags().StringVar(&think, "think", "", "how hard it thinks: "+entry.EffortWords)
	cmd.Flags().BoolVar(&reset, "reset", false, "use each bot's own model and effort")
	cmd.Flags().BoolVar(&noCheck, "no-check", false, "accept a model that is not listed")
	return cmd
}
