package run

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// shownResult is the size of the result that the parent thread shows, in bytes. The child's log has all of it.
const shownResult = 16 << 10

// phaseSaving is the phase of the heartbeats of a runner whose agent has ended.
const phaseSaving = "saving"

// end describes how a run ends.
type end struct {
	// before are the entries that came with the run's report. report gives the reason: an [entry.RunFinished],
	// [entry.PiFailed] or [entry.SessionOrphaned].
	before []entry.Draft
	report []entry.Draft
	// lost is the report of a run whose runner is gone. It then replaces report.
	lost *entry.SessionOrphaned
	to   thread.Status
	// reason is the reason for the change of status, and err the error; both may be empty.
	reason, err string
	// result is the agent's last text, usage the usage of its model calls, through the last chat that it received,
	// and patch the artifact with the changes of its tree.
	result  string
	usage   *entry.TurnUsage
	through int64
	patch   string
}

// finished returns the end of a run as its runner reports it.
func finished(author string, id string, f entry.RunFinished) end {
	e := end{to: thread.Status(f.Outcome), err: f.Error, result: f.Result, usage: f.Usage, through: f.Through, patch: f.PatchArtifactID}
	e.report = []entry.Draft{entry.NewDraft(id, author, f)}
	if f.Outcome != entry.RunFailed {
		return e
	}
	e.err = cmp.Or(f.Error, "the agent did not say why")
	e.report = append(e.report, entry.NewDraft("", "", entry.PiFailed{
		Epoch: f.Epoch, Error: e.err, Next: "continue the thread", ExitCode: f.ExitCode, Phase: cmp.Or(f.Phase, entry.PhaseExecution), LastLines: f.LastLines,
	}))
	return e
}

// failed returns the end of a run that this server could not launch, or that has exceeded a limit.
func failed(epoch int64, phase string, why error) end {
	f := fault.From(why)
	return end{to: thread.Failed, err: f.Message, report: []entry.Draft{entry.NewDraft(entry.RunEndID(epoch), "", entry.PiFailed{Epoch: epoch, Error: f.Message, Next: f.Next, Phase: phase})}}
}

// lost returns the end of a run whose runner is gone.
func lost(epoch int64, reason, lines string) end {
	return end{to: thread.Failed, err: "the run was lost: " + reason, lost: &entry.SessionOrphaned{Epoch: epoch, Reason: reason, LastLines: lines}}
}

// reports returns the entries that say why the run of a thread ends.
func (e end) reports(th thread.Thread) []entry.Draft {
	if e.lost == nil {
		return e.report
	}
	o := *e.lost
	if th.Run.Doing == (entry.Heartbeat{Phase: phaseSaving}).Doing() { // its agent had ended
		o.Phase = entry.PhaseResult
	}
	return []entry.Draft{entry.NewDraft(entry.RunEndID(o.Epoch), "", o)}
}

// cancelled returns the end of a cancelled run whose runner cannot report.
func cancelled() end { return end{to: thread.Cancelled, reason: "it was stopped"} }

// endTx ends the run of a running thread, whose row the caller has locked. It sets the row's status, writes the end
// to the log and notifies the parent thread. It ends all tokens of the run. Messages that came too late for this run
// start the next one.
func (r *Runs) endTx(ctx context.Context, tx pgx.Tx, th thread.Thread, e end) error {
	through := e.through
	if through == 0 && e.to == thread.Completed {
		through = th.Run.From // an agent that completed its work received at least what began the run
	}
	cost, err := r.spentTx(ctx, tx, th.House, th.ID, th.Run.Epoch, e.usage)
	if err != nil {
		return err
	}
	status, err := r.config.Threads.EndRunTx(ctx, tx, th, thread.End{To: e.to, Reason: e.reason, Result: cmp.Or(e.err, e.result), Through: through, CostMicros: cost.Micros, CostUnknown: cost.Unknown})
	if err != nil {
		return err
	}
	unasked, err := approval.EndTx(ctx, tx, approval.End{By: asker(th), Outcome: entry.Withdrawn})
	if err != nil {
		return err
	}
	th.Run.Through = max(th.Run.Through, through)
	if err := r.config.Boxes.TouchTx(ctx, tx, th.Sandbox); err != nil { // so that its files are saved
		return err
	}
	if err := r.goOnTx(ctx, tx, th, e); err != nil {
		return err
	}
	appends := map[stream.Ref][]entry.Draft{th.Stream(): slices.Concat(e.before, unasked, e.reports(th), []entry.Draft{status})}
	if th.ParentThread != "" {
		if appends[log(th.House, th.ParentThread)], err = r.toldTx(ctx, tx, th, e); err != nil {
			return err
		}
	}
	return r.appendAllTx(ctx, tx, th, appends)
}

// goOnTx requests the next run for messages that came too late for one that completed its work.
func (r *Runs) goOnTx(ctx context.Context, tx pgx.Tx, th thread.Thread, e end) error {
	unread, err := r.config.Threads.UnreadTx(ctx, tx, th)
	if err == nil && unread && e.to == thread.Completed {
		_, err = r.requestTx(ctx, tx, th, note{})
	}
	return err
}

// appendAllTx appends to the logs of a thread and its parent.
func (r *Runs) appendAllTx(ctx context.Context, tx pgx.Tx, th thread.Thread, appends map[stream.Ref][]entry.Draft) error {
	// Logs are always locked in this order.
	refs := slices.Collect(maps.Keys(appends))
	sort.Slice(refs, func(i, j int) bool { return refs[i].Name < refs[j].Name })
	for _, ref := range refs {
		if err := r.appendTx(ctx, tx, ref, ref == th.Stream(), appends[ref]); err != nil {
			return err
		}
	}
	return nil
}

// toldTx returns the entries for the parent thread: the end of the run, and its result as a chat of the agent. It wakes
// the delegating bot unless that waits for other tasks.
func (r *Runs) toldTx(ctx context.Context, tx pgx.Tx, th thread.Thread, e end) ([]entry.Draft, error) {
	runtime := ""
	if b, err := r.config.Bots.GetTx(ctx, tx, th.House, th.Agent); err == nil {
		runtime = b.Runtime
	} else if fault.CodeOf(err) != fault.NotFound {
		return nil, err
	}
	told := entry.ChildFinished{
		ChildThreadID: th.ID, Epoch: th.Run.Epoch, Outcome: string(e.to), Error: entry.Clip(e.err, shownTask), Runtime: runtime,
		DurationMS: time.Since(th.Run.StartedAt).Milliseconds(), Usage: e.usage, PatchArtifactID: e.patch,
	}
	last := false
	if !th.Run.Overdue {
		var err error
		if last, err = r.isLastTx(ctx, tx, th); err != nil {
			return nil, err
		}
	}
	if last {
		told.Wakes, told.Root = th.AskedBy, th.Root
	}
	result := uuid.NewString()
	drafts := []entry.Draft{
		entry.NewDraft("", th.Agent, told),
		entry.NewDraft(result, th.Agent, entry.Chat{Text: e.words(th), Run: &entry.RunSummary{ThreadID: th.ID, Epoch: th.Run.Epoch, Outcome: string(e.to), Runtime: runtime}}),
	}
	if !last || r.config.Wake == nil {
		return drafts, nil
	}
	return drafts, r.config.Wake(ctx, tx, Wake{House: th.House, Thread: th.ParentThread, Bot: th.AskedBy, Entry: result, Root: th.Root})
}

// words returns the text for the parent thread.
func (e end) words(th thread.Thread) string {
	text := e.result
	switch {
	case e.to == thread.Cancelled:
		text = "The work was stopped."
	case e.to == thread.Failed:
		text = "The work failed: " + e.err
	case text == "":
		text = "The work is done. The agent said nothing more."
	}
	if len(text) > shownResult {
		text = entry.Clip(text, shownResult) + "\n\n(The rest is in thread " + th.ID + ".)"
	}
	return text
}

// finish ends a run that has not ended. over is true if it had already ended.
func (r *Runs) finish(ctx context.Context, house, threadID string, epoch int64, e end) (over bool, err error) {
	err = r.inThread(ctx, house, threadID, func(tx pgx.Tx, th thread.Thread) error {
		if over = th.Run.Epoch != epoch || th.Status != thread.Running; over {
			return nil
		}
		return r.endTx(ctx, tx, th, e)
	})
	if fault.CodeOf(err) == fault.NotFound { // the thread was deleted
		return true, nil
	}
	return over, err
}
