package thread

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/stream"
)

// OnSandboxTx returns the ids of the threads on a sandbox.
func (t *Threads) OnSandboxTx(ctx context.Context, tx pgx.Tx, sandbox string) ([]string, error) {
	return t.q.ThreadsOnSandbox(ctx, tx, sandbox)
}

// RunningOnSandboxTx reports whether a thread on a sandbox runs.
func (t *Threads) RunningOnSandboxTx(ctx context.Context, tx pgx.Tx, sandbox string) (bool, error) {
	return t.q.RunningOnSandbox(ctx, tx, sandbox)
}

// PutOnSandboxTx assigns a thread to a sandbox of its house. If the house has no such sandbox, the error is a
// [fault.NotFound].
func (t *Threads) PutOnSandboxTx(ctx context.Context, tx pgx.Tx, id, sandbox string) error {
	return explainReference(t.q.SetThreadSandbox(ctx, tx, &sandbox, id))
}

// MoveSandboxTx moves every thread on one sandbox of the house to another sandbox, and returns their logs in the order
// in which logs are always locked, so that two such transactions cannot deadlock.
func (t *Threads) MoveSandboxTx(ctx context.Context, tx pgx.Tx, house, from, to string) ([]stream.Ref, error) {
	moved, err := t.q.RepointThreads(ctx, tx, to, house, from)
	return refs(house, moved), err
}

// MoveThreadTx is [Threads.MoveSandboxTx] for one thread. It returns no log if the thread is not on the first sandbox.
func (t *Threads) MoveThreadTx(ctx context.Context, tx pgx.Tx, house, id, from, to string) ([]stream.Ref, error) {
	moved, err := t.q.RepointThread(ctx, tx, to, id, from)
	return refs(house, moved), err
}

// refs returns logs in the order in which they are always locked.
func refs(house string, names []string) []stream.Ref {
	slices.Sort(names)
	logs := make([]stream.Ref, len(names))
	for i, name := range names {
		logs[i] = stream.Ref{House: house, Name: name}
	}
	return logs
}
