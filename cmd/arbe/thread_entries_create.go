package main

import "github.com/spf13/cobra"

// threadEntriesCreate is [say] under another name, because people look for it among the verbs for entries.
func threadEntriesCreate(a *app) *cobra.Command {
	return a.speaking("create", "arbe thread entries create")
}
