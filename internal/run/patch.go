package run

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// patchKind is the kind of an artifact with the changes of a working tree. patchTimeout limits how long the run's
// report waits for it to be stored.
const (
	patchKind    = "patch"
	patchTimeout = 15 * time.Second
)

// keepPatch stores the changes of a run's working tree as an artifact, and names it in the report. If they cannot be
// stored, the report says so, and they stay in the sandbox.
func (r *Runs) keepPatch(ctx context.Context, by Poster, f *entry.RunFinished) {
	if f.PatchPath == "" || r.config.Artifacts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	scope := db.Scope{House: by.House, Agent: by.Agent}
	kept, err := r.storePatch(ctx, scope, by, f.PatchPath)
	if err != nil {
		r.config.Logger.WarnContext(ctx, "the changes of a run's working tree were not kept", "thread", by.Thread, "run", by.Epoch, "error", fault.From(err).Detail())
		f.PatchError = "the changes stay in the sandbox, because they could not be stored: " + fault.From(err).Message
		if f.Outcome == entry.RunCompleted {
			f.Phase = entry.PhaseResult
		}
		return
	}
	f.PatchArtifactID = kept.id
	if f.PatchError != "" {
		return // the patch is incomplete, so the whole sandbox is saved once it is idle
	}
	part := sandbox.SavedPart{Folder: ".", Commit: f.PatchBase, Artifact: kept.id, Files: f.PatchFiles}
	if err := r.config.Boxes.AlsoSaved(ctx, scope, kept.sandbox, part); err != nil {
		r.config.Logger.WarnContext(ctx, "the changes of a run are kept, but do not count as what is saved of its sandbox", "thread", by.Thread, "error", fault.From(err).Detail())
	}
}

// keptPatch is the artifact with the changes of a run, and the sandbox they come from.
type keptPatch struct{ id, sandbox string }

func (r *Runs) storePatch(ctx context.Context, scope db.Scope, by Poster, path string) (kept keptPatch, err error) {
	th, err := r.config.Threads.Get(ctx, scope, by.Thread)
	if err != nil {
		return kept, err
	}
	h, err := r.config.Boxes.Handle(ctx, scope, th.Sandbox)
	if err != nil {
		return kept, err
	}
	file, err := h.Download(ctx, path)
	if err != nil {
		return kept, err
	}
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })() // a provider that sends nothing must not hold up the report
	epoch := strconv.FormatInt(by.Epoch, 10)
	made, err := r.config.Artifacts.Create(ctx, scope, artifact.Draft{
		ID: keptID(by.Thread, entry.RunEndID(by.Epoch)), Kind: patchKind, Label: "changes of run " + epoch + ".patch", MIMEType: "text/x-diff", Thread: by.Thread, Run: epoch,
	}, io.Reader(file))
	return keptPatch{made.ID, th.Sandbox}, err
}
