package main

import (
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

// serve runs a server on an operator's Postgres.
func serve(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a server on your own PostgreSQL (DATABASE_URL)",
		Long: "Start a server on an operator's PostgreSQL, version 15 or later. DATABASE_URL names it, as a role that\n" +
			"may create tables and roles: the server uses it to migrate, and serves as a role of its own.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := a.settings(cmd)
			if err != nil {
				return err
			}
			if cfg.DatabaseURL == "" {
				return fault.New(fault.Invalid, "no database is named", "set DATABASE_URL, or use arbe up, which brings its own")
			}
			return a.runServer(cmd.Context(), cfg)
		},
	}
	settingFlags(cmd)
	return cmd
}
