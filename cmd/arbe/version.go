package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version tells which build this is. It reaches no server.
func version(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which build of arbe this is",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			view := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Go       string `json:"go"`
			}{Version: "devel", Go: runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				if v := info.Main.Version; v != "" && v != "(devel)" {
					view.Version = v
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						view.Revision = s.Value
					}
				}
			}
			return a.show(view.Version, view, func() string {
				text := "arbe " + view.Version
				if view.Revision != "" {
					text += " (" + view.Revision[:min(12, len(view.Revision))] + ")"
				}
				return text + ", " + view.Go
			})
		},
	}
}
