package main

import "github.com/spf13/cobra"

func profileList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the servers that you logged in to",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			saved, err := a.profiles()
			if err != nil {
				return err
			}
			show := func(v profileView) row {
				mark := ""
				if v.InUse {
					mark = "in use"
				}
				return row{v.Profile, v, []string{v.Profile, first(v.Host, "the server of this machine"), mark}}
			}
			rows := []row{show(profileView{Profile: localProfile, InUse: saved.Current == ""})}
			for _, name := range saved.names() {
				rows = append(rows, show(profileView{name, saved.All[name].Host, saved.Current == name}))
			}
			return a.list([]string{"PROFILE", "SERVER", ""}, rows)
		},
	}
}

type profileView struct {
	Profile string `json:"profile"`
	Host    string `json:"host,omitempty"`
	InUse   bool   `json:"in_use"`
}
