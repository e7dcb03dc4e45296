package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

func up(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start arbe here, with its own database",
		Long: "Start arbe on this machine with everything it needs: a PostgreSQL in the data directory, a house\n" +
			"named Home, and local sandboxes. It runs until Ctrl-C, which also ends everything in the sandboxes. The next\n" +
			"start finds all data again.",
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
				a.say("the database of %s is not used: arbe up brings its own; arbe serve uses yours", origins["database_url"].Origin)
				cfg.DatabaseURL = ""
			}
			return a.runServer(cmd.Context(), cfg, true)
		},
	}
	settingFlags(cmd)
	return cmd
}

// runServer starts a server, prints its address and, if requested, a login link, and keeps the server running until the
// person ends it. The first signal drains and stops it in order, the second ends the draining, and the third ends the process
// at once.
func (a *app) runServer(ctx context.Context, cfg server.Config, link bool) error {
	serving, draining := a.signals.stages(ctx)
	s, err := server.Start(serving, cfg)
	if err != nil {
		return err
	}
	defer a.announce(cfg.DataDir)()
	view := runningView{URL: s.URL()}
	if link {
		if view.LoginLink, err = s.LoginLink(context.WithoutCancel(ctx)); err != nil {
			return errors.Join(err, s.Stop())
		}
	}
	if err := a.show(view.URL, view, view.text); err != nil {
		return errors.Join(err, s.Stop())
	}
	a.say("stop it with Ctrl-C; arbe login creates a login link")
	err = s.Wait(serving)
	a.say("stopping; a second signal stops it at once")
	if err == nil {
		err = s.Drain(draining)
	}
	if stopErr := s.Stop(); err == nil {
		err = stopErr
	}
	return err
}

type runningView struct {
	URL       string `json:"url"`
	LoginLink string `json:"login_link,omitempty"`
}

func (v runningView) text() string {
	text := "arbe is running at " + v.URL
	if v.LoginLink != "" {
		text += "\nlog in, once, within 15 minutes: " + v.LoginLink
	}
	return text
}

// settingFlags gives a verb a flag for each named setting, or for every setting if no names are given. Every verb already has
// the data directory's flag. Secrets have no flag, because other users of the machine can read a process's arguments. The
// address of a database has a flag, which accepts no password.
func settingFlags(cmd *cobra.Command, named ...string) {
	for _, s := range server.Settings {
		if flag := flagOf(s.Name); flag != "data-dir" && (!s.Secret || s.Name == "database_url") && (len(named) == 0 || slices.Contains(named, s.Name)) {
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
			if u, err := url.Parse(flags[s.Name]); s.Secret && (err != nil || hasPassword(u)) {
				return server.Config{}, nil, fault.Newf(fault.Invalid, "set "+s.Env+" instead of the flag: other users can read arguments", "--%s has a password", f.Name)
			}
		}
	}
	return server.Load(flags, a.getenv)
}

// hasPassword reports whether an address of a database has a password in one of the ways that PostgreSQL knows.
func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has || u.Query().Has("password") || u.Scheme == "" && strings.Contains(u.String(), "password")
}

// flagOf returns the flag of a setting.
func flagOf(setting string) string { return strings.ReplaceAll(setting, "_", "-") }
