package main

import (
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

func migrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring your PostgreSQL (DATABASE_URL) up to this version's schema",
		Long: "Bring a database up to this version's schema. A server does this when it starts. Use this command to do\n" +
			"it beforehand. It needs no secret key and writes no file. Running servers keep running.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := a.settings(cmd)
			if err != nil {
				return err
			}
			if cfg.DatabaseURL == "" {
				return fault.New(fault.Invalid, "DATABASE_URL is not set", "set it to your PostgreSQL; arbe up migrates its own database")
			}
			if err := server.Migrate(cmd.Context(), cfg); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]bool{"migrated": true})
			}
			a.say("the database is up to date")
			return nil
		},
	}
	settingFlags(cmd, "database_url")
	return cmd
}
