package main

import "github.com/spf13/cobra"

func auth(a *app) *cobra.Command {
	return group(a, "auth", "See who you are, and at which server", authWhoami, authStatus)
}
