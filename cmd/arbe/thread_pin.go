package main

import (
	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadPin(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "pin [THREAD]",
		Short:             "Pin a thread to the top of the list",
		Long:              "Pin a thread to the top of the list, for everyone in the house. THREAD defaults to $ARBE_THREAD.",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE:              a.changesThread("pinned", func(req *arbev1.UpdateThreadRequest) { req.Pinned = new(true) }),
	}
}
