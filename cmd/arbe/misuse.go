package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

// misused returns the error for a mistake in the command line that cobra found.
func misused(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return fault.New(fault.Invalid, err.Error(), "see arbe --help")
}

// misusedVerb returns the error for a mistake in the call of one verb.
func misusedVerb(cmd *cobra.Command, message string) error {
	return fault.Newf(fault.Invalid, "see "+cmd.CommandPath()+" --help", "%s", message)
}

// takes returns a check of the number of a verb's arguments. names describes them in errors.
func takes(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return misusedVerb(cmd, fmt.Sprintf("%s needs %s", cmd.CommandPath(), names))
		case len(args) > most:
			return misusedVerb(cmd, fmt.Sprintf("%s takes %s, and no %q", cmd.CommandPath(), first(names, "no arguments"), args[most]))
		}
		return nil
	}
}
