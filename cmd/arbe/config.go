package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/server"
)

// masked stands for a secret that is set.
const masked = "********"

func config(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show each setting's value and where it comes from",
		Long: "Show each setting of a server here: its value and its origin. The first of these that\n" +
			"sets it wins: flag, environment, config.json in the data directory, default. Secrets are masked, with one\n" +
			"exception: --json shows the database address of an arbe up that runs here.",
		Args: takes(0, 0, ""),
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
