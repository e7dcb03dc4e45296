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
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if meant := flagHabit(cmd, unknown.GetSpecifiedName()); meant != "" {
			return fault.New(fault.Invalid, err.Error(), "use --"+meant)
		}
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

// flagHabits are flags that people type out of habit from other programs. Each stands for the first of the others that the verb
// has.
var flagHabits = map[string][]string{
	"v": {"version"}, "V": {"version"},
	"n": {"tail", "limit"}, "lines": {"tail", "limit"}, "max": {"limit"}, "count": {"limit"}, "all": {"limit"},
	"filter": {"type", "status"}, "kind": {"type"}, "state": {"status"}, "since": {"from"}, "after": {"from"},
	"force": {"yes"}, "f": {"yes"}, "assume-yes": {"yes"},
	"output": {"json"}, "o": {"json"}, "silent": {"quiet"}, "s": {"quiet"}, "server": {"host"}, "url": {"host"}, "H": {"host"},
	"context": {"profile"}, "w": {"follow"}, "watch": {"follow"}, "background": {"detach"}, "d": {"detach"},
	"environment": {"env"}, "e": {"env"}, "org": {"house"}, "workspace": {"house"},
}

// flagHabit returns the flag that a person probably meant by an unknown one, or "".
func flagHabit(cmd *cobra.Command, typed string) string {
	for _, name := range flagHabits[typed] {
		if f := cmd.Flag(name); f != nil && !f.Hidden {
			return name
		}
	}
	return ""
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
