package main

import (
	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadClose(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "close [THREAD]",
		Short:             "Close a chat",
		Long:              "Close a chat: nobody can write or run anything in it until it is reopened. THREAD defaults to $ARBE_THREAD.",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE:              a.changesThread("closed", func(req *arbev1.UpdateThreadRequest) { req.Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED.Enum() }),
	}
}
