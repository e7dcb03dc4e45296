package main

import (
	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadClose close a chat.
func threadClose(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "close [ID]",
		Short:             "Close a chat",
		Long:              "Close a chat: nothing more can be said there until it is reopened. Without an ID, the thread in $ARBE_THREAD.",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE:              a.changesThread("closed", func(req *arbev1.UpdateThreadRequest) { req.Status = new("closed") }),
	}
}
