package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop [THREAD] [TURN]",
		Short: "Stop the bots of a thread: one turn, or all turns and the run of its coding agent",
		Long: "Stop one turn of a bot in a thread, or all running and waiting turns and the run of the coding agent that drives\n" + "it. TURN is the turn_id of the entries with which the\n" +
			"turn began and ended. THREAD defaults to $ARBE_THREAD. A turn ends within a second, and what the bot wrote is\n" +
			"kept. Commands that it runs are cancelled.",
		Example:           "  arbe thread stop th4w7q2m9x",
		Args:              takes(0, 2, "a thread and a turn"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req := &arbev1.StopTurnRequest{All: true}
			if len(args) == 2 {
				if req.All, req.TurnId = false, args[1]; req.TurnId == "" {
					return fault.New(fault.Invalid, "the turn's id is empty", "give the id of a turn, or leave it out for all turns")
				}
			}
			if req.ThreadId, err = a.threadID(ctx, c, firstOf(args)); err != nil {
				return err
			}
			stopped, err := stopRun(ctx, c, req)
			if err != nil {
				return err
			}
			done, err := c.Threads.StopTurn(ctx, req)
			if err != nil {
				return err
			}
			if len(done.GetTurnIds()) == 0 && stopped {
				a.say("told the coding agent to stop")
			} else if len(done.GetTurnIds()) == 0 {
				a.say("no bot is working there")
			}
			rows := make([]row, len(done.GetTurnIds()))
			for i, id := range done.GetTurnIds() {
				rows[i] = row{id: id, view: turnView{ID: id}, columns: []string{id}}
			}
			return a.list([]string{"STOPPED"}, rows)
		}),
	}
}

// stopRun stops the run of the coding agent that drives a thread, if the request is to stop everything. It reports whether a
// run was stopped.
func stopRun(ctx context.Context, c *arbe.Client, req *arbev1.StopTurnRequest) (bool, error) {
	t, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: req.GetThreadId()})
	if err != nil || !req.GetAll() || t.GetThread().GetAgentId() == "" {
		return false, err
	}
	done, err := c.Runs.CancelRun(ctx, &arbev1.CancelRunRequest{ThreadId: req.GetThreadId()})
	return done.GetStopped(), err
}

// turnView is a turn, as JSON.
type turnView struct {
	ID string `json:"id"`
}
