package main

import "github.com/spf13/cobra"

// profileNames proposes the profiles, for a verb's only argument or for a flag. It calls no server.
func (a *app) profileNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	saved, err := a.profiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := []cobra.Completion{cobra.CompletionWithDesc(localProfile, "the server of this machine")}
	for _, name := range saved.names() {
		found = append(found, cobra.CompletionWithDesc(name, saved.All[name].Host))
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
