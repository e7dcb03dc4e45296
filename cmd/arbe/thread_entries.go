package main

import "github.com/spf13/cobra"

func threadEntries(a *app) *cobra.Command {
	return group(a, "entries", "Read and write the log of a thread", threadEntriesCreate, threadEntriesList, threadEntriesRead)
}
