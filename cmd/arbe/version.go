package main

import (
	"github.com/spf13/cobra"

	build "github.com/arbe-dev/arbe/internal/version"
)

func version(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and build of arbe",
		Args:  takes(0, 0, ""),
		RunE:  func(*cobra.Command, []string) error { return a.showVersion() },
	}
}

func (a *app) showVersion() error {
	info := build.Get()
	return a.show(info.Version, info, func() string { return "arbe " + info.String() })
}
