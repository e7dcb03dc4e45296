package main

import (
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

func serve(a *app) *cobra.Command {
	var link bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a server on your own PostgreSQL (DATABASE_URL)",
		Long: "Start a server on an operator's PostgreSQL, version 15 or later. DATABASE_URL names it, as a role that\n" +
			"may create tables and roles: the server uses it to migrate, and serves under its own role.\n\n" +
			"It prints no login link unless --login-link asks for one, so that the log of a service has none: arbe login\n" +
			"creates one on this machine.\n\n" +
			"SIGTERM or Ctrl-C stops it in order: /readyz fails, no more commands are started, and it waits up to\n" +
			"drain_timeout for running ones. Commands that have not ended by then keep running in their sandboxes, and\n" +
			"the next server on this data directory continues with them if it starts within sandbox_grace. So a restart\n" +
			"or an upgrade interrupts nobody. A second signal ends the wait, and a third one the process.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := a.settings(cmd)
			if err != nil {
				return err
			}
			if cfg.DatabaseURL == "" {
				return fault.New(fault.Invalid, "DATABASE_URL is not set", "set it to your PostgreSQL, or use arbe up, which brings its own")
			}
			return a.runServer(cmd.Context(), cfg, link)
		},
	}
	settingFlags(cmd)
	cmd.Flags().BoolVar(&link, "login-link", false, "print a link that logs a browser in as the first house's owner, once, within 15 minutes")
	return cmd
}
