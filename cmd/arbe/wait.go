package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// waitFor waits for the end of a command.
func waitFor(a *app) *cobra.Command {
	var thread string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [-t THREAD] [COMMAND]",
		Short: "Wait for the end of a command",
		Long: "Wait until a command has ended, and exit with its exit code. COMMAND is the id of its entry, or the beginning of\n" +
			"that; the default is the latest running one of the thread. arbe exits with 125 if the command did not run, with 130\n" +
			"if it was cancelled, and with 124 if --timeout passes first. The command then runs on.",
		Example: "  arbe x -t th4w7q2m9x --detach -- make all\n" +
			"  arbe wait -t th4w7q2m9x",
		Args: cobra.MaximumNArgs(1),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if timeout < 0 {
				return fault.New(fault.Invalid, "--timeout is negative", "give a duration such as 90s or 10m")
			}
			id, err := a.threadID(ctx, c, thread)
			if err != nil {
				return err
			}
			command, _, err := a.runningCommand(ctx, c, id, slices.Concat(args, []string{""})[0], func(entry.Command) bool { return true })
			if err != nil {
				return err
			}
			if timeout > 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeoutCause(ctx, timeout, errWaited)
				defer stop()
			}
			result, err := c.Await(ctx, id, command)
			switch {
			case result == nil && context.Cause(ctx) == errWaited:
				a.say("the command has not ended after %s", timeout)
				return exitCode(exitWaited)
			case result == nil:
				return err
			}
			if a.json {
				if err := a.printJSON(export.ViewEntry(result.Entry)); err != nil {
					return err
				}
			} else if payload, _ := export.Decode(result.Entry); payload != nil {
				r, _ := payload.(entry.CommandResult)
				a.say("%s", entry.Printable(r.Outcome()))
			}
			switch {
			case result.Error != "", result.ExitCode < 0 && !result.Cancelled:
				return exitCode(exitNotRun)
			case result.Cancelled:
				return exitCode(exitInterrupted)
			}
			return exitCode(result.ExitCode)
		}),
	}
	cmd.Flags().StringVarP(&thread, "thread", "t", "", "the thread (default $ARBE_THREAD)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: until it ends)")
	a.completes(cmd, "thread", a.threads)
	return cmd
}

// exitWaited is the exit code of arbe wait after a timeout, as in timeout(1).
const exitWaited = 124

// errWaited reports that the time of arbe wait has passed.
var errWaited = errors.New("the time limit for waiting has passed")
