package run

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file collects the entries that a killed runner could not post, and its working tree. A second runner of the same run
// finds both in the sandbox. It ends remaining processes, saves the tree, posts everything and reports.

// collectFor limits the collection.
const collectFor = time.Minute

// collect launches the second runner of a run and waits until it has ended. Whether it could report is in the thread's row.
func (l *launch) collect(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher) {
	bounded, cancel := context.WithTimeout(ctx, collectFor)
	defer cancel()
	program, err := l.putRunner(bounded, h, func(string) {})
	if err == nil {
		// A repeated launch, for example after a restart of this server, finds the program that it started before.
		err = l.launchRunner(bounded, h, launcher, l.collectID(), program)
	}
	if err == nil {
		err = launcher.Follow(bounded, h.Ref, l.collectID(), 0, func(sandbox.Record) error { return nil })
	}
	if err != nil && ctx.Err() == nil {
		l.config.Logger.WarnContext(ctx, "what a killed runner left could not be collected", "error", fault.From(err).Detail())
	}
}

// ends ends the programs of the run, and what they started.
func (l *launch) ends(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher) (err error) {
	for _, id := range []string{l.id(), l.collectID()} {
		if failed := launcher.End(ctx, h.Ref, id, 0); failed != nil && fault.CodeOf(failed) != fault.NotFound {
			err = failed
		}
		l.forget(ctx, launcher, h.Ref, id)
	}
	return err
}
