package thread

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Terminal reports whether a driven thread is idle after a run.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// BeginRunTx begins the next run of a driven thread, whose row the caller has locked, and returns the updated thread.
// The log records it and its policy in the same transaction. A thread that is running, or that nobody drives, is a
// [fault.Precondition].
func (t *Threads) BeginRunTx(ctx context.Context, tx pgx.Tx, th Thread, policy entry.Reason) (Thread, error) {
	if err := th.may(Running); err != nil {
		return th, err
	}
	epoch, err := t.q.BeginRun(ctx, tx, th.Tail, th.ID)
	if err != nil {
		return th, err
	}
	_, err = t.log.AppendTx(ctx, tx, th.Stream(), th.changed(Running, "", entry.StatusChanged{Epoch: epoch, Policy: string(policy)}))
	if err != nil {
		return th, err
	}
	return t.GetTx(ctx, tx, th.ID)
}

// End describes how a run ends.
type End struct {
	To Status
	// Reason is for the entry that records the change. Result is the agent's last text, or why the run failed. Both
	// may be empty.
	Reason, Result string
	// Through is the last chat that the agent has received; 0 if that is not known.
	Through int64
	// CostMicros and CostUnknown are as in [Run].
	CostMicros  int64
	CostUnknown bool
}

// maxResult is the length of a run's result in the thread's row, in characters.
const maxResult = 300

// EndRunTx ends the run of a running thread, whose row the caller has locked. It returns the entry that records the
// end. The caller appends it to the thread's log in the same transaction, after the entries that explain it. It ends
// all tokens of the thread.
func (t *Threads) EndRunTx(ctx context.Context, tx pgx.Tx, th Thread, e End) (entry.Draft, error) {
	if err := th.may(e.To); err != nil {
		return entry.Draft{}, err
	}
	if err := t.q.SetThreadStatus(ctx, tx, string(e.To), th.ID); err != nil {
		return entry.Draft{}, err
	}
	err := t.q.EndRunAt(ctx, tx, query.EndRunAtParams{
		ID: th.ID, Through: min(e.Through, th.Tail), Tail: th.Tail, Result: entry.OneLine(e.Result, maxResult), Cost: e.CostMicros, CostUnknown: e.CostUnknown,
	})
	if err != nil {
		return entry.Draft{}, err
	}
	return th.changed(e.To, "", entry.StatusChanged{Reason: e.Reason, Epoch: th.Run.Epoch}), nil
}

// Progress is a runner's report about its run.
type Progress struct {
	// Through is the last chat that the agent has received; 0 if that is not known.
	Through int64
	// Entries and Bytes count what it has written since the last report.
	Entries, Bytes int64
	// The others are as in [Run].
	Doing, Tool string
	CostMicros  int64
	CostUnknown bool
}

// MoveRunTx records a heartbeat of a run. If the run is over, the error is a [fault.Forbidden].
func (t *Threads) MoveRunTx(ctx context.Context, tx pgx.Tx, id string, epoch int64, p Progress) error {
	th, err := t.GetTx(ctx, tx, id)
	if err != nil {
		return err
	}
	moved, err := t.q.MoveRun(ctx, tx, query.MoveRunParams{ID: id, Epoch: epoch, Through: p.Through, Tail: th.Tail, Entries: p.Entries, Bytes: p.Bytes,
		Doing: p.Doing, Tool: p.Tool, Cost: p.CostMicros, CostUnknown: p.CostUnknown})
	if err == nil && moved == 0 {
		err = fault.New(fault.Forbidden, "this run is over", "stop the agent")
	}
	return err
}

// RunningAfter returns up to most running threads of all houses, in the order of their ids, after an id.
func (t *Threads) RunningAfter(ctx context.Context, after string, most int) (list []Thread, err error) {
	err = t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := t.q.RunningThreads(ctx, tx, after, int32(most))
		for _, r := range rows {
			list = append(list, Thread{ID: r.ID, House: r.HouseID})
		}
		return err
	})
	return list, err
}

// RunningBelowTx returns the ids of the running threads among a thread and all its descendants.
func (t *Threads) RunningBelowTx(ctx context.Context, tx pgx.Tx, id string) ([]string, error) {
	return t.q.RunningBelow(ctx, tx, id)
}

// BusyChildrenTx returns how many of the threads that were delegated from a thread have not ended.
func (t *Threads) BusyChildrenTx(ctx context.Context, tx pgx.Tx, parent string) (int64, error) {
	return t.q.BusyChildren(ctx, tx, &parent)
}

// LockDelegationsTx makes transactions that delegate from a thread take turns, so that the limit of its children is exact. A
// transaction that also locks the thread's row must call this first.
func (t *Threads) LockDelegationsTx(ctx context.Context, tx pgx.Tx, parent string) error {
	return t.q.LockDelegations(ctx, tx, parent)
}

// AwaitedBesideTx counts the other threads that the same agent delegated from the same parent and waits for.
func (t *Threads) AwaitedBesideTx(ctx context.Context, tx pgx.Tx, th Thread) (int64, error) {
	return t.q.AwaitedBeside(ctx, tx, &th.ParentThread, &th.AskedBy, th.ID)
}

// AwaitTx records that the delegator of a thread waits for the end of its run, and for how long.
func (t *Threads) AwaitTx(ctx context.Context, tx pgx.Tx, id string, patience time.Duration) error {
	return t.q.AwaitRun(ctx, tx, patience.Seconds(), id)
}

// EndWaitTx records that the delegator of a thread no longer waits for the end of its run. first is false if the
// wait's time has not passed, or if somebody has already recorded its end.
func (t *Threads) EndWaitTx(ctx context.Context, tx pgx.Tx, id string) (first bool, err error) {
	n, err := t.q.EndWait(ctx, tx, id)
	return n > 0, err
}

// Overdue returns up to most threads of all houses whose wait has passed its deadline, the longest overdue first.
func (t *Threads) Overdue(ctx context.Context, most int) (list []Thread, err error) {
	err = t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := t.q.OverdueThreads(ctx, tx, int32(most))
		for _, r := range rows {
			list = append(list, Thread{ID: r.ID, House: r.HouseID})
		}
		return err
	})
	return list, err
}

// LockChildrenTx makes transactions that end runs below a thread take turns.
func (t *Threads) LockChildrenTx(ctx context.Context, tx pgx.Tx, parent string) error {
	return t.q.LockChildren(ctx, tx, parent)
}

// DepthTx returns how many threads are above a thread.
func (t *Threads) DepthTx(ctx context.Context, tx pgx.Tx, id string) (int, error) {
	n, err := t.q.ThreadDepth(ctx, tx, id)
	return int(n), err
}
