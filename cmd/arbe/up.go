package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

// up runs a server that needs nothing else: it brings its own Postgres.
func up(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start arbe here, with a database of its own",
		Long: "Start arbe on this machine with everything it needs: a PostgreSQL in the data directory, a house\n" +
			"named Home, and local sandboxes. It goes on until Ctrl-C, and a later start finds all data.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := a.settings(cmd)
			if err != nil {
				return err
			}
			if origins["database_url"].Origin == "flag" {
				return fault.New(fault.Invalid, "arbe up brings its own database", "use arbe serve with --database-url")
			}
			if cfg.DatabaseURL != "" {
				a.say("the database of %s is not used: arbe up brings its own, arbe serve takes yours", origins["database_url"].Origin)
				cfg.DatabaseURL = ""
			}
			return a.runServer(cmd.Context(), cfg)
		},
	}
	settingFlags(cmd)
	return cmd
}

// runServer starts a server, says where it is, and keeps it until the person ends it.
func (a *app) runServer(ctx context.Context, cfg server.Config) error {
	s, err := server.Start(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "arbe is running at %s\nlog in, once, within 15 minutes: %s\n", s.URL(), s.LoginLink())
	a.say("stop it with Ctrl-C; arbe login makes another link")
	err = s.Wait(ctx)
	a.say("stopping")
	if stopErr := s.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// settingFlags gives a verb a flag for each setting, but for the data directory, which is every verb's.
func settingFlags(cmd *cobra.Command) {
	for _, s := range server.Settings {
		if flag := flagOf(s.Name); flag != "data-dir" {
			cmd.Flags().String(flag, "", fmt.Sprintf("%s (%s)", s.Usage, s.Env))
		}
	}
}

// settings reads the server's settings: the verb's flags, the environment, the file, the defaults.
func (a *app) settings(cmd *cobra.Command) (server.Config, server.Origins, error) {
	flags := map[string]string{}
	for _, s := range server.Settings {
		if f := cmd.Flags().Lookup(flagOf(s.Name)); f != nil && f.Changed {
			flags[s.Name] = f.Value.String()
		}
	}
	return server.Load(flags, a.getenv)
}

// flagOf is the flag of a setting.
func flagOf(setting string) string { return strings.ReplaceAll(setting, "_", "-") }
