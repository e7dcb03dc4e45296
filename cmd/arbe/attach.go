package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// attach returns to the terminal of a command.
func attach(a *app) *cobra.Command {
	var thread string
	cmd := &cobra.Command{
		Use:   "attach [-t THREAD] [COMMAND]",
		Short: "Return to a command that has a terminal",
		Long: "Return to a running command that arbe x -it began: after --keep, or within a minute. COMMAND is the id of\n" +
			"its entry, or the beginning of that; the default is the latest one of the thread. If it is connected to another\n" +
			"terminal, that one is disconnected.",
		Example: "  arbe attach -t th4w7q2m9x",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, thread)
			if err != nil {
				return err
			}
			command, said, err := a.runningCommand(ctx, c, id, slices.Concat(args, []string{""})[0], func(c entry.Command) bool { return c.Terminal != nil })
			if err != nil {
				return err
			}
			return a.withTerminal(ctx, said.Terminal.Keep, id, command.GetId(), func(ctx context.Context, t arbe.Terminal, opts ...arbe.RunOption) (*arbe.Result, error) {
				return c.Join(ctx, id, command, t, opts...)
			})
		}),
	}
	cmd.Flags().StringVarP(&thread, "thread", "t", "", "the thread (default $ARBE_THREAD)")
	a.completes(cmd, "thread", a.threads)
	return cmd
}

// searchedForCommands is the number of a thread's entries that are searched for a command.
const searchedForCommands = 1000

// runningCommand returns the latest running command of a thread that fits and whose id begins with prefix. With a prefix,
// the command may also have ended.
func (a *app) runningCommand(ctx context.Context, c *arbe.Client, thread, prefix string, fits func(entry.Command) bool) (*arbev1.Entry, entry.Command, error) {
	got, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, Last: true, Limit: searchedForCommands, Types: []string{"command", "command_result"}})
	if err != nil {
		return nil, entry.Command{}, err
	}
	ended := map[string]bool{}
	for _, e := range slices.Backward(got.GetEntries()) {
		payload, _ := export.Decode(e)
		switch p := payload.(type) {
		case entry.CommandResult:
			ended[p.CommandID] = true
		case entry.Command:
			named := prefix != "" && len(e.GetId()) >= len(prefix) && e.GetId()[:len(prefix)] == prefix
			if fits(p) && (named || prefix == "" && !ended[e.GetId()]) {
				return e, p, nil
			}
		}
	}
	message := "the thread has no such command"
	if prefix == "" {
		message = "no command that fits runs in the thread"
	}
	return nil, entry.Command{}, fault.New(fault.NotFound, message, "see its commands with: arbe thread entries list "+thread+" --type command")
}
