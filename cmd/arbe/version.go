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
			}{Go: runtime.Version()}
			view.Version, view.Revision = build()
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

// build is the version of this build, and the commit it was made from if that is known.
func build() (version, revision string) {
	version = "devel"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}
