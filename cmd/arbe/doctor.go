package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
)

func doctor(a *app) *cobra.Command {
	var house string
	var noSandbox bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a server and its environment, and say what to do",
		Long: "Examine an installation, with one line per part: ok, a warning, a problem, or why it was not tested. Anything but ok is\n" +
			"followed by what to do. It exits with 1 if there is a problem.\n\n" +
			"For any server that you use, it examines whether the server answers, its clock, your credential, your house's models, and,\n" +
			"in a thread that it creates and then deletes, whether a sandbox starts and reaches the server.\n\n" +
			"On the machine of a server, as the user who runs it, it also examines the database (version, migrations, whether the\n" +
			"servers' role is bound by row-level security), the secret key, the clocks, the disk and what grows on it, the runtime\n" +
			"of sandboxes, the keys of models in this environment, and the addresses. It reads settings as arbe serve does; set\n" +
			"DATABASE_URL, ARBE_DATA_DIR and ARBE_SECRET_KEY as for the server. It works when no server runs.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			var found []finding
			if a.operates(cmd, t) {
				cfg, _, err := a.settings(cmd)
				if err != nil {
					return err
				}
				for _, f := range server.Examine(cmd.Context(), cfg, a.getenv) {
					found = append(found, finding{f.Part, verdict(f.Status), f.Says, f.Next})
				}
			}
			e := examination{app: a, client: arbe.New(t.Host, t.Token), target: t, house: house}
			found = append(found, e.server(cmd.Context())...)
			if !noSandbox {
				found = append(found, e.sandbox(cmd.Context())...)
			}
			return a.showFindings(found)
		},
	}
	settingFlags(cmd, "database_url")
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&noSandbox, "no-sandbox", false, "start no sandbox")
	return cmd
}

// operates reports whether this is the server's machine. If it finds a running server's data directory, later reads of the
// settings use it. A DATABASE_URL alone proves nothing, because other programs use the variable too.
func (a *app) operates(cmd *cobra.Command, t target) bool {
	if s, err := serverOf(a.dataDir(), a.namesDataDir()); err == nil && s.Host == t.Host {
		return true
	}
	for _, s := range a.runningServers() {
		if s.Host == t.Host {
			return cmd.Flags().Set("data-dir", s.dataDir) == nil
		}
	}
	return first(a.hostFlag, a.getenv("ARBE_HOST"), t.Profile) == "" || cmd.Flags().Changed("database-url")
}

// showFindings prints the findings. It returns exit code 1 if there is a problem.
func (a *app) showFindings(found []finding) error {
	ill := slices.ContainsFunc(found, func(f finding) bool { return f.Status == problem })
	if a.json {
		if err := a.printJSON(found); err != nil {
			return err
		}
	} else {
		var text strings.Builder
		w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, f := range found {
			if a.quiet && f.Status != problem {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Status, f.Part, entry.PrintableLine(f.Says))
			if f.Next != "" {
				fmt.Fprintf(w, "\t\t→ %s\n", entry.PrintableLine(f.Next))
			}
		}
		w.Flush()
		if err := a.printText(text.String()); err != nil {
			return err
		}
	}
	if ill {
		return exitCode(1)
	}
	return nil
}
