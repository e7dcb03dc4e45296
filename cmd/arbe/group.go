package main

import "github.com/spf13/cobra"

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
		return unknownVerb(cmd, args[0])
	}
	g.DisableFlagsInUseLine = true
	g.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// oldName returns a verb under an older name, which works as before but is not in the help. It says the name that replaces it:
// see docs/compatibility.md.
func oldName(verb func(*app) *cobra.Command, instead string) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		cmd := verb(a)
		cmd.Hidden = true
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.say("%s is an older name; use arbe %s", cmd.CommandPath(), instead)
			return run(cmd, args)
		}
		return cmd
	}
}
