package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// treeChanges shows the changes in the working tree of a thread's sandbox.
func (a *app) treeChanges(w http.ResponseWriter, r *http.Request) error {
	most, only, err := onlyFile(r, pageOfDiff)
	if err != nil {
		return err
	}
	v := treeChangesView{diffView: diffView{
		Only: only, Path: treeChangesPath(r.PathValue("thread")), Split: isSplit(r), Uncommitted: r.URL.Query().Get("scope") == "uncommitted", Entry: newID(),
	}}
	err = a.treeOf(r, &v.tree, func(ctx context.Context) (err error) {
		if v.Scopes, err = a.scopesOf(ctx, v.tree.Thread.Id); err != nil {
			return err
		}
		if v.Changes, err = a.changesOfTree(ctx, v.tree.Thread.Id, v.Uncommitted); err == nil {
			v.Diff, v.Of = markup.ParseDiff(string(v.Changes.Patch), most), digestOf(v.Changes.Patch)
		}
		return err
	})
	if err != nil {
		return err
	}
	v.diffView.Layout, v.diffView.Thread = v.tree.Layout, v.tree.Thread
	if v.Only > max(len(v.Diff.Files), 1) {
		return noFileOfPatch()
	}
	if v.Reader, err = a.readerOf(r.Context(), v.tree.Thread); err != nil {
		return err
	}
	return a.show(w, r, v.status(), treeChangesPage(v))
}

func (a *app) changesOfTree(ctx context.Context, thread string, uncommitted bool) (*arbev1.GetSandboxChangesResponse, error) {
	return a.services.sandboxes.GetSandboxChanges(ctx, &arbev1.GetSandboxChangesRequest{ThreadId: thread, Uncommitted: uncommitted})
}

// scopesOf returns the scopes of a thread: its files, and its last runs with changes.
func (a *app) scopesOf(ctx context.Context, thread string) ([]diffScope, error) {
	res, err := a.services.runs.ListRuns(ctx, &arbev1.ListRunsRequest{ThreadId: thread, PageSize: 20})
	return scopesOf(thread, res.GetRuns()), err
}

// readerOf returns the name of the bot that drives a thread, which reads comments there. It is empty for a chat.
func (a *app) readerOf(ctx context.Context, t *arbev1.Thread) (string, error) {
	if t.AgentId == "" {
		return "", nil
	}
	people, err := a.peopleOf(ctx, t.HouseId)
	if err == nil {
		err = people.Meet(ctx, t.AgentId)
	}
	if err != nil {
		return "", err
	}
	return clip(people.ByID(t.AgentId).Name, 40), nil
}

// digestOf identifies a patch. Comments refer to lines by numbers that are valid for one patch only.
func digestOf(patch []byte) string {
	sum := sha256.Sum256(patch)
	return hex.EncodeToString(sum[:8])
}

// commentOnTree posts the comments of a form on the changes in a thread's sandbox, as one message. If the files have changed
// since the page was opened, nothing is posted, because the comments would quote other lines.
func (a *app) commentOnTree(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	list, lost := remarksOf(r.PostForm), lostRemarksOf(r.PostForm)
	if err := countRemarks(len(list) + len(lost)); err != nil {
		return err
	}
	thread := r.PathValue("thread")
	changes, err := a.changesOfTree(r.Context(), thread, r.PostForm.Get("scope") == "uncommitted")
	if err != nil {
		return err
	}
	if digestOf(changes.Patch) != r.PostForm.Get("of") {
		failed := fault.New(fault.Aborted, "the files have changed since you opened the page, and nothing is sent", "load the page again, which keeps your comments, and send them then")
		return &unsent{error: failed, Action: threadPath(thread) + "/entries", Fields: map[string]string{"entry": r.PostFormValue("entry")}, Text: looseRemarks(list, lost)}
	}
	diff := markup.ParseDiff(string(changes.Patch), quotedOfDiff)
	return a.postRemarks(w, r, outgoingMessage{Thread: thread, ID: r.PostFormValue("entry"), Text: treeRemarksText(diff, list, lost)})
}

// discardChanges discards the uncommitted changes to one file, with a command in the thread, so that everybody sees it.
func (a *app) discardChanges(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	thread, file, id := r.PathValue("thread"), path.Clean(r.PostForm.Get("path")), r.PostForm.Get("entry")
	if file == "." || path.IsAbs(file) || !isID(id) {
		return fault.New(fault.Invalid, "the form names no file", "open the changes again and choose one there")
	}
	res, err := a.services.threads.RunCommand(r.Context(), &arbev1.RunCommandRequest{
		ThreadId: thread, Id: id, What: &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: discarding(file, r.PostForm.Get("change"))}},
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, entryPath(thread, res.Entry.GetSeq()), http.StatusSeeOther)
	return nil
}

// discarding returns the command that discards the uncommitted changes to a file. It runs git in the folder of a changed file,
// because the file's repository need not be the whole tree.
func discarding(file, change string) []string {
	restore := []string{"restore", "--staged", "--worktree", "--"}
	switch change {
	case "added":
		return []string{"rm", "-f", "--", file}
	case "deleted":
		return append([]string{"git", "--literal-pathspecs"}, append(restore, file)...)
	}
	return append([]string{"git", "--literal-pathspecs", "-C", path.Dir(file)}, append(restore, path.Base(file))...)
}
