package run

import (
	"context"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// witness turns a report of success into one of failure if the agent cannot tell the two apart, and its last model call
// did not end well or it said nothing. A sandbox therefore cannot claim a success that the gateway did not see.
func (r *Runs) witness(ctx context.Context, by Poster, f *entry.RunFinished) error {
	if f.Outcome != entry.RunCompleted || r.config.Witness == nil {
		return nil
	}
	b, err := r.config.Bots.Get(ctx, db.Scope{House: by.House}, by.Agent)
	if fault.CodeOf(err) == fault.NotFound {
		return nil // the bot was removed, and nobody waits for it
	} else if err != nil || !r.config.Agents[b.Runtime].Witness {
		return err
	}
	failed, err := r.config.Witness(ctx, by.House, by.Thread, by.Epoch)
	if err != nil {
		return err
	}
	if failed == "" && f.Result == "" {
		failed = "no output: the agent said nothing"
	}
	if failed != "" {
		f.Outcome, f.Phase, f.Error = entry.RunFailed, entry.PhaseExecution, failed
	}
	return nil
}
