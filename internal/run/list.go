package run

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Run is one run as the log tells it.
type Run struct {
	Thread string
	Epoch  int64
	// Status is running, completed, failed or cancelled.
	Status thread.Status
	// Started and Ended are when; Ended is zero while it runs.
	Started, Ended time.Time
	// Phase is the phase in which it failed, and Error why; empty if it did not. LastLines are the last lines of its program.
	Phase, Error, Next, LastLines string
	// Result is the last text of the agent.
	Result string
	// Usage is what its model calls used, as far as its runner said.
	Usage *entry.TurnUsage
	// Patch is the artifact with the changes of its working tree; empty if there is none.
	Patch string
}

// List returns the last runs of a driven thread, latest first, up to most of them.
func (r *Runs) List(ctx context.Context, scope db.Scope, threadID string, most int) (list []Run, err error) {
	th, err := r.config.Threads.Get(ctx, scope, threadID)
	if err != nil {
		return nil, err
	}
	for before := th.Tail + 1; before > 1 && len(list) <= most; {
		entries, _, err := r.config.Log.Read(ctx, th.Stream(), stream.Range{Before: before, Last: true, Limit: 1000})
		if err != nil || len(entries) == 0 {
			return trimmed(list, most), err
		}
		for i := len(entries) - 1; i >= 0; i-- {
			list = learn(list, threadID, entries[i])
		}
		before = entries[0].Seq
	}
	return trimmed(list, most), nil
}

func trimmed(list []Run, most int) []Run { return list[:min(len(list), most)] }

// learn adds what an entry says of a run. Entries come from the last to the first.
func learn(list []Run, threadID string, e entry.Entry) []Run {
	p, ok := entry.Decode(e)
	if !ok {
		return list
	}
	at := func(epoch int64) *Run {
		for i := range list {
			if list[i].Epoch == epoch {
				return &list[i]
			}
		}
		list = append(list, Run{Thread: threadID, Epoch: epoch, Status: thread.Running})
		return &list[len(list)-1]
	}
	switch p := p.(type) {
	case entry.StatusChanged:
		switch {
		case p.Epoch == 0:
		case thread.Status(p.To) == thread.Running:
			at(p.Epoch).Started = e.Time
		default:
			run := at(p.Epoch)
			run.Status, run.Ended = thread.Status(p.To), e.Time
		}
	case entry.RunFinished:
		run := at(p.Epoch)
		run.Result, run.Usage, run.Patch = p.Result, p.Usage, p.PatchArtifactID
	case entry.PiFailed:
		run := at(p.Epoch)
		run.Phase, run.Error, run.Next, run.LastLines = p.Phase, p.Error, p.Next, p.LastLines
	case entry.SessionOrphaned:
		run := at(p.Epoch)
		run.Phase, run.Error, run.LastLines = entry.PhaseObservation, "the run was lost: "+p.Reason, p.LastLines
		run.Next = "continue the thread: the agent goes on from the log"
	}
	return list
}
