package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

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
	name, _, _ := strings.Cut(arg, "=")
	return arg == "--json" || name == "--jq" || name == "--template"
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
		return "run arbe up again: it creates a new key for this machine"
	}
	return "log in with: arbe login " + t.Host + ", or set ARBE_TOKEN to an API key"
}
