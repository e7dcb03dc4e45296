package sandbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// placedMost is how many of a thread's files one use of its sandbox looks at. The next use looks at more.
	placedMost = 100
	// placedTotal limits the bytes of the files that the use of a sandbox waits for, and [entry.AtOnce] those of one file.
	placedTotal = 64 << 20
	// placeTime limits how long it waits for them.
	placeTime = 10 * time.Second
	// backgroundTime limits the writing of one file for which nobody waits, and writtenAtOnce is how many sandboxes of a server
	// are written to like that at once.
	backgroundTime, writtenAtOnce = 5 * time.Minute, 4
	// replaceAfter is the first pause after a file could not be written.
	replaceAfter = time.Minute
)

// attached writes the files that are attached to messages of threads to the sandboxes of the threads. It is safe for
// concurrent use.
type attached struct {
	artifacts *artifact.Artifacts // nil: there are no files
	sandboxes *Sandboxes
	logger    *slog.Logger
	rests     rests         // of files, by sandbox and artifact
	patience  time.Duration // placeTime, except in tests
	slots     *slots

	mu      sync.Mutex
	begin   func(func(context.Context)) // starts background work; nil while the server does none
	writing map[string]bool             // the sandboxes to which the background writes
}

// placing is one sandbox with the thread whose files it gets.
type placing struct {
	scope  db.Scope
	thread string
	box    Handle
}

// place writes the files of a thread that its sandbox does not have yet to [entry.FilesFolder]; see [entry.FileName]. The user
// of the box may delete them, and they do not come back. Whoever uses the sandbox waits for a limited time and size, so that
// nobody can make a thread slow with large files. The background writes the others, and place returns their names. A file that
// cannot be written, because the disk is full for example, is logged and tried again later: commands must run all the same, to
// make room. So the only errors are that the box is gone, a [fault.NotFound], and that ctx has ended.
func (a *attached) place(ctx context.Context, to placing) (missing []string, err error) {
	if a.artifacts == nil {
		return nil, nil
	}
	files, err := a.artifacts.Unplaced(ctx, to.scope, to.thread, to.box.ID, placedMost)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	var total int64
	for _, f := range files {
		waits := f.Size <= entry.AtOnce && total+f.Size <= placedTotal && limited.Err() == nil
		if waits {
			total += f.Size
			waits, err = a.write(limited, to, f)
		}
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		if !waits {
			missing = append(missing, entry.FileName(f.Label, f.ID))
		}
	}
	if len(missing) > 0 {
		a.writeLater(to)
	}
	return missing, nil
}

// write writes one file and records it, unless it rests after a failure. The only error is that the box is gone, a
// [fault.NotFound].
func (a *attached) write(ctx context.Context, to placing, f artifact.Artifact) (written bool, err error) {
	at := to.box.ID + "/" + f.ID
	if !a.rests.over(at) {
		return false, nil
	}
	content, err := a.artifacts.Open(ctx, f)
	if err == nil {
		defer content.Close() //nolint:errcheck // it was only read
		err = to.box.Upload(ctx, path.Join(Home, entry.FilesFolder, entry.FileName(f.Label, f.ID)), 0o444, content)
		if fault.CodeOf(err) == fault.NotFound {
			return false, err
		}
	}
	if err == nil {
		err = a.artifacts.Placed(ctx, to.scope, to.box.ID, f.ID)
	}
	if err != nil && ctx.Err() == nil { // a file for which nobody waits any longer did not fail
		a.rests.begin(at, replaceAfter)
		a.logger.WarnContext(ctx, "a file of a message cannot be written to a sandbox", "sandbox", to.box.ID, "artifact", f.ID, "error", fault.From(err).Detail())
	}
	return err == nil, nil
}

// inBackground lets files be written for which nobody waits. begin starts work of this server, whose context ends with it.
func (a *attached) inBackground(begin func(func(context.Context))) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin = begin
}

// writeLater writes the missing files of a sandbox in the background. If the server ends before, the next use of the sandbox
// continues.
func (a *attached) writeLater(to placing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begin == nil || a.writing[to.box.ID] {
		return
	}
	a.writing[to.box.ID] = true
	a.begin(func(ctx context.Context) {
		a.writeRest(ctx, to)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.writing, to.box.ID)
	})
}

// writeRest writes the files that a sandbox does not have yet: small ones first, because they are there soonest.
func (a *attached) writeRest(ctx context.Context, to placing) {
	release, err := a.slots.acquire(ctx, to.scope.House)
	if err != nil {
		return
	}
	defer release()
	ended := a.sandboxes.KeepUsed(ctx, to.scope, to.box.ID)
	defer ended()
	for progress := true; progress && ctx.Err() == nil; { // files may come in the meantime
		files, err := a.artifacts.Unplaced(ctx, to.scope, to.thread, to.box.ID, placedMost)
		if err != nil {
			a.logger.WarnContext(ctx, "cannot find the files that a sandbox does not have", "sandbox", to.box.ID, "error", fault.From(err).Detail())
			return
		}
		slices.SortStableFunc(files, func(x, y artifact.Artifact) int { return cmp.Compare(x.Size, y.Size) })
		progress = false
		for _, f := range files {
			limited, cancel := context.WithTimeout(ctx, backgroundTime)
			written, err := a.write(limited, to, f)
			cancel()
			if err != nil {
				return // the box is gone
			}
			progress = progress || written
		}
	}
}
