package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// placedMost is how many files of a thread are written to its sandbox before one use of it. The next use writes more.
	placedMost = 100
	// placeTime limits the writing of these files, because what uses the sandbox waits for them.
	placeTime = 5 * time.Minute
	// replaceAfter is the first pause after a file could not be written.
	replaceAfter = time.Minute
)

// attached writes the files that are attached to messages of threads to the sandboxes of the threads. It is safe for
// concurrent use.
type attached struct {
	artifacts *artifact.Artifacts // nil: there are no files
	logger    *slog.Logger
	rests     rests // of files, by sandbox and artifact
}

// PlaceFiles writes the files of a thread's messages to its sandbox, for programs that run there. It builds and wakes none, and
// does nothing if this server does not reach it. The next command writes what is missing.
func (r *Resolver) PlaceFiles(ctx context.Context, scope db.Scope, threadID string) error {
	th, err := r.threads.Get(ctx, scope, threadID)
	if err != nil || th.Sandbox == "" {
		return err
	}
	p, err := r.Handle(ctx, scope, th.Sandbox)
	if _, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere || fault.CodeOf(err) == fault.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	return r.files.place(ctx, scope, threadID, p)
}

// place writes the files of a thread that its sandbox does not have yet to [entry.FilesFolder]; see [entry.FileName]. The user
// of the box may delete them, and they do not come back. A file that cannot be written, because the disk is full for example, is
// logged and tried again later: commands must run all the same, to make room. So the only errors are that the box is gone,
// a [fault.NotFound], and that ctx has ended.
func (a *attached) place(ctx context.Context, scope db.Scope, threadID string, p Handle) error {
	if a.artifacts == nil {
		return nil
	}
	files, err := a.artifacts.Unplaced(ctx, scope, threadID, p.ID, placedMost)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	for _, f := range files {
		at := p.ID + "/" + f.ID
		if !a.rests.over(at) {
			continue
		}
		gone, err := a.write(limited, scope, p, f)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case gone:
			return err
		case err != nil:
			a.rests.begin(at, replaceAfter)
			a.logger.WarnContext(ctx, "a file of a message cannot be written to a sandbox", "sandbox", p.ID, "artifact", f.ID, "error", fault.From(err).Detail())
		}
	}
	return nil
}

// write writes one file and records it. gone reports that the error says that the box is gone.
func (a *attached) write(ctx context.Context, scope db.Scope, p Handle, f artifact.Artifact) (gone bool, err error) {
	content, err := a.artifacts.Open(ctx, f)
	if err != nil {
		return false, err
	}
	defer content.Close() //nolint:errcheck // it was only read
	if err := p.Upload(ctx, path.Join(Home, entry.FilesFolder, entry.FileName(f.Label, f.ID)), 0o444, content); err != nil {
		return fault.CodeOf(err) == fault.NotFound, err
	}
	return false, a.artifacts.Placed(ctx, scope, p.ID, f.ID)
}
