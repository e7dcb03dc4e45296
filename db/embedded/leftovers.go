package embedded

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// endLeftovers ends the PostgreSQL that a killed owner left on the cluster. One that is shutting down gets time. One
// that hangs is killed, and so are processes whose postmaster was killed. This is safe because we hold the
// directory's lock.
func endLeftovers(ctx context.Context, dir *directory, log *slog.Logger) error {
	postmaster := dir.postmasterFile().pid
	find := func() []int { return postgresOn(dir.cluster(), postmaster) }
	if len(find()) == 0 {
		return dropForeignPID(dir, postmaster)
	}
	log.Info("waiting for the PostgreSQL of an earlier start to end", "pid", postmaster)
	return end(ctx, dir.cluster(), postmaster, find)
}

// endStep is a signal that ends processes, and how long it is given to do so.
type endStep struct {
	signal syscall.Signal
	only   int // the pid that gets it; 0 for all
	wait   time.Duration
}

// end ends the processes that find returns. One of them may be the postmaster.
func end(ctx context.Context, cluster string, postmaster int, find func() []int) error {
	steps := []endStep{
		{syscall.SIGINT, postmaster, 20 * time.Second},
		{syscall.SIGQUIT, 0, cutOffTimeout},
		{syscall.SIGKILL, 0, cutOffTimeout},
	}
	for _, step := range steps {
		found := find()
		if len(found) == 0 { // they ended by themselves
			return nil
		}
		if step.only != 0 {
			found = slices.DeleteFunc(found, func(pid int) bool { return pid != step.only })
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, step.signal)
		}
		if len(found) == 0 { // a postmaster that is gone is not worth waiting for
			continue
		}
		gone, err := awaitNone(ctx, find, step.wait)
		if err != nil {
			return fault.From(err)
		}
		if gone {
			return nil
		}
	}
	return fault.Newf(fault.Precondition, "end those processes, then start again",
		"PostgreSQL processes of an earlier start still run on %s: pids %v", cluster, find())
}

// awaitNone waits until find returns no process, and reports whether that happened in time.
func awaitNone(ctx context.Context, find func() []int, within time.Duration) (bool, error) {
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(find()) > 0 {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline:
			return false, nil
		case <-tick.C:
		}
	}
	return true, nil
}

// dropForeignPID removes a stale pid file whose pid now belongs to an unrelated process, as often happens after a
// restart of a container. PostgreSQL would mistake that process for another server. It keeps other stale files, for
// PostgreSQL to check.
func dropForeignPID(dir *directory, pid int) error {
	if pid <= 0 || syscall.Kill(pid, 0) != nil {
		return nil
	}
	err := os.Remove(filepath.Join(dir.cluster(), "postmaster.pid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a PostgreSQL that is just ending removes it too
		return dir.unusable(err)
	}
	return nil
}
