package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// topics are the help pages that belong to no verb.
var topics = []func() *cobra.Command{
	environmentTopic,
	serversTopic,
	exitCodesTopic,
	formattingTopic,
}

// run executes one command line and returns the process's exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(withTerminalFlag(args))
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = misused(err)
	}
	if err == nil {
		err = a.unhelped
	}
	if a.pager != nil {
		err = a.pager.close(err)
	}
	return a.exit(ctx, err, args)
}

// withTerminalFlag returns the arguments with the -it of arbe x as one flag. People write -it as for other programs that run
// commands elsewhere, but here -t takes a value.
func withTerminalFlag(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-it" && slices.Contains(args[:i], "x") {
			args[i] = "--tty"
			break
		}
	}
	return args
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "arbe [command]",
		Short: "Say something in a thread, and work happens",
		Long: "arbe runs threads: people and bots talk in them, commands and coding agents work in\n" +
			"sandboxes, and everyone sees it live and can return to it.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil {
				return conflictingFlags(cmd, err)
			}
			a.started = true
			a.pageVerb(cmd)
			return a.checkConfirmable(cmd)
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(wrongFlag)
	root.SetUsageFunc(usage)
	a.addFlags(root)
	makeGroup(root)
	a.addVersionFlag(root)
	a.addVerbs(root)
	a.completeFlags(root)
	for _, topic := range topics {
		root.AddCommand(topic())
	}
	root.SetHelpCommand(help(root))
	root.SetHelpCommandGroupID("Others")
	a.setHelp(root)
	return root
}

// addFlags defines the flags of every verb.
func (a *app) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON, errors too (see arbe help formatting)")
	flags.Var(&filterFlag{app: a}, "jq", "print the result of this jq `EXPRESSION` for the JSON (see arbe help formatting)")
	flags.Var(&templateFlag{app: a}, "template", "print the output of this Go `TEMPLATE` for the JSON (see arbe help formatting)")
	root.MarkFlagsMutuallyExclusive("jq", "template")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only ids, and only errors on stderr")
	flags.Bool("no-pager", false, "print long output without a pager (see arbe help environment)")
	flags.StringVar(&a.hostFlag, "host", "", "address of the server (default $ARBE_HOST; see arbe help servers)")
	flags.StringVar(&a.profileFlag, "profile", "", "server and credential stored by arbe login (default $ARBE_PROFILE)")
	flags.StringVar(&a.dataDirFlag, "data-dir", "", "data directory of a server on this machine (default $ARBE_DATA_DIR or .arbe)")
}

// completeFlags completes the values of the flags of every verb.
func (a *app) completeFlags(root *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{"profile": a.profileNames, "jq": cobra.NoFileCompletions, "template": cobra.NoFileCompletions} {
		if err := root.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // impossible: addFlags has defined the flag
		}
	}
}

// addVersionFlag makes arbe --version do what arbe version does.
func (a *app) addVersionFlag(root *cobra.Command) {
	about := root.RunE
	versionFlag := root.Flags().Bool("version", false, "print the version, as arbe version does")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *versionFlag {
			return a.showVersion()
		}
		return about(cmd, args)
	}
}

// addVerbs adds all verbs, in their groups.
func (a *app) addVerbs(root *cobra.Command) {
	root.CompletionOptions.DisableDefaultCmd = true // ours is in the table
	for _, part := range verbs {
		root.AddGroup(&cobra.Group{ID: part.title, Title: part.title + ":"})
		for _, verb := range part.verbs {
			cmd := verb(a)
			cmd.GroupID = part.title
			root.AddCommand(cmd)
		}
	}
}

// setHelp makes help go through the pager, and makes it JSON with --json.
func (a *app) setHelp(root *cobra.Command) {
	asText := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if !a.json {
			if a.pager == nil { // cobra calls no PreRun for --help
				a.page(cmd)
			}
			var text strings.Builder
			root.SetOut(&text)
			asText(cmd, args)
			root.SetOut(a.out)
			if err := a.printText(text.String()); a.unhelped == nil {
				a.unhelped = err
			}
			return
		}
		if a.unhelped == nil {
			a.unhelped = a.printJSON(viewHelp(cmd))
		}
	})
}
