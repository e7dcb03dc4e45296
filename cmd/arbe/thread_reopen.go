package main

import (
	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadReopen(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "reopen [THREAD]",
		Short:             "Reopen a closed chat",
		Long:              "Reopen a closed chat. THREAD defaults to $ARBE_THREAD.",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE:              a.changesThread("reopened", func(req *arbev1.UpdateThreadRequest) { req.Status = arbev1.ThreadStatus_THREAD_STATUS_OPEN.Enum() }),
	}
}
