package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func profileUse(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "use PROFILE",
		Short: "Choose the server to use from now on",
		Long: "Choose the server to use from now on when neither a flag nor the environment names one. The profile local is\n" +
			"the server of this machine.",
		Args:              takes(1, 1, "one profile"),
		ValidArgsFunction: a.profileNames,
		RunE: func(_ *cobra.Command, args []string) error {
			saved, err := a.profiles()
			if err != nil {
				return err
			}
			name, host := args[0], ""
			if name != localProfile {
				p, err := saved.named(name)
				if err != nil {
					return err
				}
				saved.Current, host = name, p.Host
			} else {
				saved.Current = ""
			}
			if err := saved.save(); err != nil {
				return err
			}
			view := usedProfileView{name, host}
			return a.show(name, view, func() string {
				return fmt.Sprintf("profile %s is in use: %s", name, first(host, "the server of this machine"))
			})
		},
	}
}

type usedProfileView struct {
	Profile string `json:"profile"`
	Host    string `json:"host,omitempty"`
}
