package main

import (
	"github.com/spf13/cobra"
)

func (a *app) houseFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "house", "", "house to work in, by id or name (default $ARBE_HOUSE, or your only one)")
	a.completes(cmd, "house", a.houses)
}
