package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// changes shows an artifact that is a patch: as a page, or, for the script, in its place in a thread.
func (a *app) changes(w http.ResponseWriter, r *http.Request) error {
	most, only, err := onlyFile(r, pageOfDiff)
	if err != nil {
		return err
	}
	v := diffView{Entry: newID(), Path: changesPath(r.PathValue("artifact")), Only: only, Split: isSplit(r)}
	if fromScript(r) {
		most = pieceOfDiff
	}
	if err := a.readChanges(r.Context(), r.PathValue("artifact"), most, &v); err != nil {
		return err
	}
	if v.Only > len(v.Diff.Files) {
		return noFileOfPatch()
	}
	if v.Run, err = a.runThatLeft(r.Context(), v.Artifact); err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if fromScript(r) {
		return a.patch(w, r, "#"+changesKey(v.Artifact.Id), diffPiece(v))
	}
	current := ""
	if v.Thread != nil {
		current = v.Thread.Id
		if v.Reader, err = a.readerOf(r.Context(), v.Thread); err != nil {
			return err
		}
		if v.Run != nil {
			if v.Scopes, err = a.scopesOf(r.Context(), v.Thread.Id); err != nil {
				return err
			}
		}
	}
	if v.Layout, err = a.layoutOf(r, v.Artifact.HouseId, current); err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, diffPage(v))
}

// onlyFile returns the number of the only file of a patch that a request asks for, or 0, and the limits of the patch.
func onlyFile(r *http.Request, most markup.DiffLimits) (_ markup.DiffLimits, only int, err error) {
	if text := r.URL.Query().Get("file"); text != "" {
		most = fileOfDiff
		if only, err = strconv.Atoi(text); err != nil || only < 1 {
			return most, 0, noFileOfPatch()
		}
		most.Only = only
	}
	return most, only, nil
}

func noFileOfPatch() error {
	return fault.New(fault.NotFound, "there is no such file in this patch", "open the patch again")
}

// readChanges reads a patch, and the thread that it comes from.
func (a *app) readChanges(ctx context.Context, id string, most markup.DiffLimits, v *diffView) error {
	res, err := a.services.artifacts.GetArtifact(ctx, &arbev1.GetArtifactRequest{Id: id})
	if err != nil {
		return err
	}
	v.Artifact = res.Artifact
	if !v.Artifact.HasBytes {
		return fault.New(fault.NotFound, "this artifact has no bytes here", "open it where it is")
	}
	text, err := a.services.bytesOf(ctx, v.Artifact.Id, maxPatch)
	if err != nil {
		return err
	}
	v.Part = v.Artifact.Size > maxPatch
	v.Diff = markup.ParseDiff(string(text), most)
	v.Thread, err = a.threadIfAny(ctx, v.Artifact.ThreadId)
	return err
}

// commentOnChanges posts the comments of a form on a patch, as one message, in the thread that the patch comes from.
func (a *app) commentOnChanges(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	list := remarksOf(r.PostForm)
	if err := countRemarks(len(list)); err != nil {
		return err
	}
	var v diffView
	if err := a.readChanges(r.Context(), r.PathValue("artifact"), quotedOfDiff, &v); err != nil {
		return err
	}
	if v.Thread == nil {
		return fault.New(fault.NotFound, "the thread of this patch is gone", "say it in another thread")
	}
	return a.postRemarks(w, r, outgoingMessage{Thread: v.Thread.Id, ID: r.PostFormValue("entry"), Text: remarksText(v.Artifact, v.Diff, list)})
}

// countRemarks refuses a form without comments, and one with too many.
func countRemarks(n int) error {
	switch {
	case n == 0:
		return fault.New(fault.Invalid, "there is no comment", "write one below the lines that it is about")
	case n > maxRemarks:
		return fault.Newf(fault.Exhausted, "send the others with another message", "a message may have %d comments", maxRemarks).WithReason(fault.TooLarge)
	}
	return nil
}

// postRemarks posts comments, and leads to them.
func (a *app) postRemarks(w http.ResponseWriter, r *http.Request, u outgoingMessage) error {
	seq, err := a.post(r.Context(), u)
	if err != nil {
		return &unsent{error: err, Action: threadPath(u.Thread) + "/entries", Fields: map[string]string{"entry": u.ID}, Text: u.Text}
	}
	if fromScript(r) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		send(w, r, http.StatusOK, []byte(entryPath(u.Thread, seq)), nil)
		return nil
	}
	http.Redirect(w, r, entryPath(u.Thread, seq), http.StatusSeeOther)
	return nil
}

// applyChanges applies the patch of a run to the files of the thread that delegated the task, and shows the command that does so.
func (a *app) applyChanges(w http.ResponseWriter, r *http.Request) error {
	of, epoch, err := a.runOfChanges(r)
	if err != nil {
		return err
	}
	done, err := a.services.runs.ApplyChanges(r.Context(), &arbev1.ApplyChangesRequest{ThreadId: of, Epoch: epoch})
	if err != nil {
		return err
	}
	http.Redirect(w, r, entryPath(done.ThreadId, done.Command.GetSeq()), http.StatusSeeOther)
	return nil
}

// openBranch pushes the patch of a run as a branch, and shows the command that does so.
func (a *app) openBranch(w http.ResponseWriter, r *http.Request) error {
	of, epoch, err := a.runOfChanges(r)
	if err != nil {
		return err
	}
	done, err := a.services.runs.OpenBranch(r.Context(), &arbev1.OpenBranchRequest{ThreadId: of, Epoch: epoch, Name: strings.TrimSpace(r.PostForm.Get("name"))})
	if err != nil {
		return err
	}
	http.Redirect(w, r, entryPath(done.ThreadId, done.Command.GetSeq()), http.StatusSeeOther)
	return nil
}

// runOfChanges returns the thread and the run that a patch comes from.
func (a *app) runOfChanges(r *http.Request) (threadID string, epoch int64, err error) {
	if err := parseForm(r); err != nil {
		return "", 0, err
	}
	res, err := a.services.artifacts.GetArtifact(r.Context(), &arbev1.GetArtifactRequest{Id: r.PathValue("artifact")})
	if err != nil {
		return "", 0, err
	}
	run, err := a.runThatLeft(r.Context(), res.Artifact)
	return run.GetThreadId(), run.GetEpoch(), err
}

// runThatLeft returns the run that left a patch as its changes. Anyone can make an artifact that looks like the patch of a run,
// but the applied patch must be the one that the person has seen. If no run left it, the error is a [fault.NotFound].
func (a *app) runThatLeft(ctx context.Context, patch *arbev1.Artifact) (*arbev1.Run, error) {
	if runOf(patch) > 0 {
		list, err := a.services.runs.ListRuns(ctx, &arbev1.ListRunsRequest{ThreadId: patch.ThreadId, PageSize: 100})
		if err != nil {
			return nil, err
		}
		for _, run := range list.Runs {
			if run.PatchArtifactId == patch.Id {
				return run, nil
			}
		}
	}
	return nil, fault.New(fault.NotFound, "these are not the changes of a run", "download them instead")
}

// isSplit reports whether a request is for both sides of changes.
func isSplit(r *http.Request) bool { return r.URL.Query().Get("view") == "split" }
