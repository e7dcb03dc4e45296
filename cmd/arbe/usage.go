package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usage prints how to call a verb, its subverbs, and its flags. It replaces cobra's usage for two reasons. First, our groups
// can be called and also have verbs, and cobra prints a line for each. Second, cobra would run a changed template with
// text/template, which calls methods by name, so the linker would keep every exported method in the program.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	local, inherited := cmd.LocalFlags(), cmd.InheritedFlags() // first, because they complete the flags that UseLine reads
	b.WriteString("Usage:")
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if len(cmd.Aliases) > 0 {
		b.WriteString("\n\nAliases:\n  " + cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	for _, group := range cmd.Groups() {
		listCommands(&b, cmd, group.Title, func(c *cobra.Command) bool {
			return c.GroupID == group.ID && (c.IsAvailableCommand() || c.Name() == "help") // help counts as unavailable
		})
	}
	if len(cmd.Groups()) == 0 && cmd.HasAvailableSubCommands() {
		listCommands(&b, cmd, "Available Commands:", (*cobra.Command).IsAvailableCommand)
	}
	if local.HasAvailableFlags() {
		b.WriteString("\n\nFlags:\n" + strings.TrimRight(local.FlagUsages(), " \n"))
	}
	if inherited.HasAvailableFlags() {
		b.WriteString("\n\nGlobal Flags:\n" + strings.TrimRight(inherited.FlagUsages(), " \n"))
	}
	if cmd.HasHelpSubCommands() {
		listCommands(&b, cmd, "Additional help topics:", (*cobra.Command).IsAdditionalHelpTopicCommand)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(cmd.OutOrStderr(), b.String())
	return err
}

// listCommands lists the commands below cmd that belong under a title. It lists topics the way people call them, with arbe.
func listCommands(b *strings.Builder, cmd *cobra.Command, title string, belongs func(*cobra.Command) bool) {
	b.WriteString("\n\n" + title)
	for _, c := range cmd.Commands() {
		if !belongs(c) {
			continue
		}
		name, width := c.Name(), c.NamePadding()
		if c.IsAdditionalHelpTopicCommand() {
			name, width = c.CommandPath(), c.CommandPathPadding()
		}
		fmt.Fprintf(b, "\n  %-*s %s", width, name, c.Short)
	}
}
