package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// exitCode is the error of a verb that has already reported everything and exits with this code.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exit reports an error, if any, and returns the process's exit code.
func (a *app) exit(ctx context.Context, err error, args []string) int {
	if err == nil {
		return 0
	}
	code, ended := errors.AsType[exitCode](err)
	switch {
	case code == exitInterrupted, (ctx.Err() != nil || a.signals.came()) && (errors.Is(err, context.Canceled) || connect.CodeOf(err) == connect.CodeCanceled):
		return a.signals.code()
	case ended:
		return int(code)
	}
	e := a.explain(err)
	// Search the arguments themselves, because a command line that could not be parsed may still have asked for JSON.
	a.report(e, a.json || !a.started && slices.ContainsFunc(args, asksForJSON))
	return e.Code.ExitCode()
}

func asksForJSON(arg string) bool {
	return arg == "--json" || arg == "--jq" || strings.HasPrefix(arg, "--jq=")
}

// report reports an error to the person, or to a program that reads JSON.
func (a *app) report(e *fault.Error, asJSON bool) {
	if asJSON {
		a.printError(e)
	} else {
		fmt.Fprintf(a.err, "arbe: %s\n", entry.Printable(e.Error()))
	}
}

// printError writes an error for programs: {"error":{"code":…,"reason":…,"message":…,"next":…}}.
func (a *app) printError(e *fault.Error) {
	// Ignore the error: if stderr cannot be written, it has no other place to go.
	_ = export.EncodeJSON(a.err, map[string]fault.Body{"error": e.Body()})
}

// explain turns any error of a verb into one that a person can act on.
func (a *app) explain(err error) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return a.explainCall(e)
	}
	return fault.New(fault.Internal, err.Error(), "")
}

// explainCall explains a failed call: in the server's words, or in ours if no arbe server answered.
func (a *app) explainCall(err *connect.Error) *fault.Error {
	code := fault.Code(err.Code().String())
	t, _ := a.target()
	switch {
	case err.Code() == connect.CodeUnauthenticated:
		// Replace the server's next step, which is about logging in with a browser.
		return fault.Newf(fault.Unauthenticated, t.logIn(), "not logged in at %s (%s)", t.Host, err.Message()).Because(err)
	case connect.IsWireError(err):
		e := fault.New(code, err.Message(), arbe.Next(err)).WithReason(fault.Reason(arbe.Reason(err))).Because(err)
		e.Reference = arbe.Reference(err)
		return e
	case err.Code() == connect.CodeUnavailable && t.isLocal():
		next := "start it with: arbe up"
		if running := a.runningServers(); len(running) > 0 {
			next += ", or use the one that runs with: --data-dir " + running[0].dataDir
		}
		return fault.Newf(fault.Unavailable, next, "no arbe server at %s", t.Host).Because(err)
	case err.Code() == connect.CodeUnavailable:
		return fault.Newf(fault.Unavailable, "check the address (arbe auth status shows where it comes from), and that the server runs", "no arbe server can be reached at %s", t.Host).Because(err)
	}
	return fault.Newf(fault.Unavailable, "check the address (arbe auth status shows where it comes from), and try again", "%s did not answer as an arbe server does (%s)", t.Host, err.Message()).Because(err)
}

// logIn says how to get a credential that the server accepts.
func (t target) logIn() string {
	switch {
	case t.Credential == "ARBE_TOKEN":
		return "set ARBE_TOKEN to another API key, or unset it"
	case t.Profile != "":
		return "log in again with: arbe login " + t.Host + " --profile " + t.Profile
	case t.Credential != "":
		return "start arbe up again, which makes a new key for this machine"
	}
	return "log in with: arbe login " + t.Host + ", or set ARBE_TOKEN to an API key"
}

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

// wrongFlag returns the error for a mistake in a flag. It replaces the parser's message, which names Go's types and functions.
func wrongFlag(cmd *cobra.Command, err error) error {
	if typed := cmd.Flags().Args(); cmd.HasSubCommands() && len(typed) > 0 {
		return unknownVerb(cmd, typed[0]) // the flag belongs to it: arbe ls -l
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && (unknown.GetSpecifiedName() == "template" || unknown.GetSpecifiedName() == "format") {
		return fault.New(fault.Invalid, err.Error(), "use --json or --jq; see arbe help formatting")
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return misusedVerb(cmd, err.Error())
	}
	if expression, ok := errors.AsType[*wrongFilter](err); ok {
		return fault.Newf(fault.Invalid, "see arbe help formatting", "--jq: %s", expression)
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
