package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// completion prints the scripts with which shells complete arbe's command lines. It calls no server.
func completion(a *app) *cobra.Command {
	shell := func(name, load string, write func(root *cobra.Command, to io.Writer) error) func(*app) *cobra.Command {
		return func(a *app) *cobra.Command {
			return &cobra.Command{
				Use:     name,
				Short:   "Print the completion script for " + name,
				Long:    "Print the script that makes " + name + " complete verbs, flags, ids and names. Ids and names come from the server\nin use.",
				Example: load,
				Args:    takes(0, 0, ""),
				RunE: func(cmd *cobra.Command, _ []string) error {
					if !a.json {
						return write(cmd.Root(), a.out)
					}
					var script strings.Builder
					if err := write(cmd.Root(), &script); err != nil {
						return err
					}
					return a.printJSON(map[string]string{"shell": name, "script": script.String()})
				},
			}
		}
	}
	return group(a, "completion", "Print the completion script for your shell",
		shell("bash", "  source <(arbe completion bash)   # in ~/.bashrc; needs the package bash-completion",
			func(root *cobra.Command, to io.Writer) error { return root.GenBashCompletionV2(to, true) }),
		shell("zsh", "  source <(arbe completion zsh)    # in ~/.zshrc, after compinit",
			func(root *cobra.Command, to io.Writer) error { return root.GenZshCompletion(to) }),
		shell("fish", "  arbe completion fish > ~/.config/fish/completions/arbe.fish",
			func(root *cobra.Command, to io.Writer) error { return root.GenFishCompletion(to, true) }),
		shell("powershell", "  arbe completion powershell | Out-String | Invoke-Expression   # in $PROFILE",
			func(root *cobra.Command, to io.Writer) error { return root.GenPowerShellCompletionWithDesc(to) }))
}
