package main

import "github.com/spf13/cobra"

func auth(a *app) *cobra.Command {
	return group(a, "auth", "Show who you are and which server you use", authWhoami, authStatus)
}
