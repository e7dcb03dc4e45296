package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

// group combines verbs under one verb: "arbe thread …".
func group(a *app, use, short string, verbs ...func(*app) *cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use + " [command]", Short: short}
	makeGroup(g)
	for _, verb := range verbs {
		g.AddCommand(verb(a))
	}
	return g
}

// makeGroup makes a command show its help when it is called without a verb, and refuse an unknown verb, which cobra would
// answer with the group's help and success.
func makeGroup(g *cobra.Command) {
	g.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		message := fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return fault.New(fault.Invalid, message, fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), near[0]))
		}
		return misusedVerb(cmd, message)
	}
	g.SuggestionsMinimumDistance = 2
	g.DisableFlagsInUseLine = true
	g.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
