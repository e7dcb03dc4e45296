package main

import (
	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadUnpin(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "unpin [THREAD]",
		Short:             "Unpin a thread",
		Long:              "Unpin a thread: it is sorted by activity again. THREAD defaults to $ARBE_THREAD.",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE:              a.changesThread("unpinned", func(req *arbev1.UpdateThreadRequest) { req.Pinned = new(false) }),
	}
}
