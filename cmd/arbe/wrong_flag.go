package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arbe-dev/arbe/internal/fault"
)

// wrongFlag returns the error for a mistake in a flag. It replaces the parser's message, which names Go's types and functions.
func wrongFlag(cmd *cobra.Command, err error) error {
	if typed := cmd.Flags().Args(); cmd.HasSubCommands() && len(typed) > 0 {
		return unknownVerb(cmd, typed[0]) // the flag belongs to it: arbe ls -l
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedName() == "format" {
		return fault.New(fault.Invalid, err.Error(), "use --json, --jq or --template; see arbe help formatting")
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return misusedVerb(cmd, err.Error())
	}
	if expression, ok := errors.AsType[*wrongFilter](err); ok {
		return fault.Newf(fault.Invalid, "see arbe help formatting", "--%s: %s", wrong.GetFlag().Name, expression)
	}
	must := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "bool": "true or false",
		"duration": "a duration such as 90s, 10m or 720h",
	}[wrong.GetFlag().Value.Type()]
	message := fmt.Sprintf("--%s: %q is not a valid value", wrong.GetFlag().Name, wrong.GetValue())
	switch {
	case errors.Is(err, strconv.ErrRange):
		message = fmt.Sprintf("--%s: %s is too large or too small", wrong.GetFlag().Name, wrong.GetValue())
	case must != "":
		message = fmt.Sprintf("--%s: %q is not %s", wrong.GetFlag().Name, wrong.GetValue(), must)
	}
	return misusedVerb(cmd, message)
}

// conflictingFlags explains an error of [cobra.Command.ValidateFlagGroups], which ends with the names of the flags: "[edit delete]
// were all set".
func conflictingFlags(cmd *cobra.Command, err error) error {
	message := err.Error()
	if from, to := strings.LastIndexByte(message, '['), strings.LastIndexByte(message, ']'); from >= 0 && from < to {
		if names := strings.Fields(message[from+1 : to]); len(names) > 1 {
			message = "--" + strings.Join(names, " and --") + " cannot be used together"
		}
	}
	return misusedVerb(cmd, message)
}
