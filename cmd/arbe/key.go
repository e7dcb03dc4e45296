package main

import "github.com/spf13/cobra"

func key(a *app) *cobra.Command {
	return group(a, "key", "Create, list and revoke API keys", keyCreate, keyList, keyRevoke)
}
