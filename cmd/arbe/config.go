package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

// masked stands for a secret that is set.
const masked = "********"

// configArgs refuses what other programs' config verbs take, and says what to do in place of it.
func configArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	next := "arbe config shows every setting and its origin"
	if slices.Contains([]string{"set", "unset", "edit"}, args[0]) {
		next = "set it in config.json in the data directory, in the environment or with a flag of arbe serve and arbe up; " + next
	}
	return fault.Newf(fault.Invalid, next, "arbe config takes no arguments, and no %q", args[0])
}

func config(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show each setting's value and where it comes from",
		Long: "Show each setting of a server here: its value and its origin. The first of these that\n" +
			"sets it wins: flag, environment, config.json in the data directory, default. Secrets are masked, with one\n" +
			"exception: --json shows the database address of an arbe up that runs here.",
		Args: configArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := a.settings(cmd)
			if err != nil {
				return err
			}
			for _, s := range server.Settings {
				if v := origins[s.Name]; s.Secret && v.Value != "" {
					origins[s.Name] = server.Value{Value: masked, Origin: v.Origin}
				}
			}
			if local := server.LocalDatabaseURL(cfg.DataDir); local != "" && origins["database_url"].Value == "" {
				v := server.Value{Value: masked, Origin: "data directory"}
				if a.json {
					v.Value = local
				}
				origins["database_url"] = v
			}
			if a.json {
				return a.printJSON(origins)
			}
			if isTerminal(a.out) && !a.quiet {
				rows := make([]row, len(server.Settings))
				for i, s := range server.Settings {
					rows[i] = row{id: s.Name, columns: []string{s.Name, origins[s.Name].Value, origins[s.Name].Origin}}
				}
				return a.list([]string{"SETTING", "VALUE", "ORIGIN"}, rows)
			}
			var text strings.Builder
			w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
			for _, s := range server.Settings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, origins[s.Name].Value, origins[s.Name].Origin)
			}
			w.Flush()
			_, err = fmt.Fprint(a.out, text.String())
			return err
		},
	}
	settingFlags(cmd)
	return cmd
}

// settingsView has the settings by name.
type settingsView = server.Origins
