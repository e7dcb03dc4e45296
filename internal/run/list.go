package run

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Run is one run as recorded in the log.
type Run struct {
	Thread string
	Epoch  int64
	// Status is running, completed, failed or cancelled.
	Status thread.Status
	// Policy is the reason why the run began; empty for runs from before this was recorded.
	Policy entry.Reason
	// Ended is zero while the run continues.
	Started, Ended time.Time
	// Phase and Error say when and why the run failed, or why its changes could not be collected; empty otherwise.
	// LastLines are the last lines of its output.
	Phase, Error, Next, LastLines string
	// Result is the last text of the agent.
	Result string
	// Usage is the usage of its model calls: the gateway's figures if they went through it, otherwise the runner's.
	Usage *entry.TurnUsage
	// Patch is the artifact with the changes of its working tree; empty if there is none.
	Patch string
	// PatchBase is the commit to which the changes apply, as reported by the runner.
	PatchBase string
	// Repository is the URL to which [Runs.Branch] would push the changes; empty if it would refuse to.
	Repository string
}

// List returns the last runs of a driven thread, latest first, at most "most" of them, and the cost of the thread and
// all its descendants. If before is not 0, it returns only runs before that epoch.
func (r *Runs) List(ctx context.Context, scope db.Scope, threadID string, before int64, most int) (list []Run, tree Cost, err error) {
	th, err := r.config.Threads.Get(ctx, scope, threadID)
	if err != nil {
		return nil, tree, err
	}
	later := func(run Run) bool { return before != 0 && run.Epoch >= before }
	for seq := th.Tail + 1; seq > 1 && !th.Inherited(seq-1) && len(list) <= most; {
		entries, _, err := r.config.Log.Read(ctx, th.Stream(), stream.Range{Before: seq, Last: true, Limit: 1000})
		if err != nil {
			return nil, tree, err
		}
		if len(entries) == 0 {
			break
		}
		for i := len(entries) - 1; i >= 0; i-- {
			if !th.Inherited(entries[i].Seq) { // otherwise the run was one of the thread from which it was forked
				list = learn(list, threadID, entries[i])
			}
		}
		list = slices.DeleteFunc(list, later)
		seq = entries[0].Seq
	}
	list = list[:min(len(list), most)]
	if err := r.nameRepositories(ctx, scope, th, list); err != nil {
		return nil, tree, err
	}
	tree, err = r.count(ctx, th, list)
	return list, tree, err
}

// count adds their usage to the runs, and returns the cost of their thread and all its descendants.
func (r *Runs) count(ctx context.Context, th thread.Thread, list []Run) (tree Cost, err error) {
	if r.config.Spent == nil {
		return tree, nil
	}
	epochs := make([]int64, len(list))
	for i := range list {
		epochs[i] = list[i].Epoch
	}
	err = r.config.DB.In(ctx, db.Scope{House: th.House}, func(tx pgx.Tx) error {
		used, err := r.config.Spent(ctx, tx, th.House, th.ID, epochs...)
		if err != nil {
			return err
		}
		for i := range list {
			if u, ok := used[list[i].Epoch]; ok {
				list[i].Usage = &u
			}
		}
		if r.config.TreeSpent != nil {
			tree, err = r.config.TreeSpent(ctx, tx, th.House, th.ID)
		}
		return err
	})
	return tree, err
}

// spentTx returns the cost of a run so far: the gateway's figure if its calls went through it, otherwise the
// runner's.
func (r *Runs) spentTx(ctx context.Context, tx pgx.Tx, house, threadID string, epoch int64, said *entry.TurnUsage) (Cost, error) {
	if r.config.Spent != nil {
		used, err := r.config.Spent(ctx, tx, house, threadID, epoch)
		if u, ok := used[epoch]; ok || err != nil {
			return Cost{u.CostMicros, u.CostUnknown}, err
		}
	}
	if said == nil {
		return Cost{}, nil
	}
	return Cost{max(said.CostMicros, 0), said.CostUnknown}, nil
}

// learn adds the facts of an entry to the runs. Entries come from the last to the first.
func learn(list []Run, threadID string, e entry.Entry) []Run {
	p, ok := entry.Decode(e)
	if !ok {
		return list
	}
	at := func(epoch int64) *Run { return runOf(&list, threadID, epoch) }
	switch p := p.(type) {
	case entry.StatusChanged:
		if p.Epoch != 0 {
			at(p.Epoch).changed(p, e.Time)
		}
	case entry.RunFinished:
		run := at(p.Epoch)
		run.Result, run.Usage, run.Patch, run.PatchBase = p.Result, p.Usage, p.PatchArtifactID, p.PatchBase
		if p.Outcome == entry.RunCompleted && p.Phase == entry.PhaseResult {
			run.Phase, run.Error, run.Next = p.Phase, p.PatchError, "look for them in its sandbox: arbe x -t "+threadID+" git status"
		}
	case entry.PiFailed:
		run := at(p.Epoch)
		run.Phase, run.Error, run.Next, run.LastLines = p.Phase, p.Error, p.Next, p.LastLines
	case entry.SessionOrphaned:
		run := at(p.Epoch)
		run.Phase, run.Error, run.LastLines = cmp.Or(p.Phase, entry.PhaseObservation), "the run was lost: "+p.Reason, p.LastLines
		run.Next = "continue the thread: the agent goes on from the log"
	}
	return list
}

// runOf returns a run of the list, to which it adds the run if it is not there.
func runOf(list *[]Run, threadID string, epoch int64) *Run {
	for i := range *list {
		if (*list)[i].Epoch == epoch {
			return &(*list)[i]
		}
	}
	*list = append(*list, Run{Thread: threadID, Epoch: epoch, Status: thread.Running})
	return &(*list)[len(*list)-1]
}

// changed adds a change of status.
func (r *Run) changed(p entry.StatusChanged, at time.Time) {
	if thread.Status(p.To) == thread.Running {
		r.Started, r.Policy = at, entry.Reason(p.Policy)
		return
	}
	r.Status, r.Ended = thread.Status(p.To), at
}
