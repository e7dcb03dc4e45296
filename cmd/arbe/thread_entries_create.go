package main

import "github.com/spf13/cobra"

// threadEntriesCreate is [say], where the verbs about entries are.
func threadEntriesCreate(a *app) *cobra.Command {
	return a.speaking("create", "arbe thread entries create")
}
