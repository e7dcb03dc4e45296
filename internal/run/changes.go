package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/runner"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file lets people use the changes of a run. Both ways are commands of our runner's program in a sandbox. The
// thread's log shows who ran each command and how it ended. [Runs.Provide] uploads the patch when the command begins.

// changesProgram is the path in a sandbox of the runner's program for such commands. changesDir returns the directory
// of an artifact's changes there.
const changesProgram = home + "/arbe-runner"

func changesDir(artifactID string) string { return home + "/changes/" + artifactID }

// mostAttempts limits how often the changes of a run can be applied, or pushed as one branch.
const mostAttempts = 100

// Used describes a command that uses the changes of a run.
type Used struct {
	// Thread is the thread whose log has the command; empty if there are no changes.
	Thread  string
	Command entry.Entry
	// Branch is the branch that is pushed, and URL its page; both are empty if none is pushed.
	Branch, URL string
}

// Apply applies the changes of a run to the working tree of the thread that delegated its task, completely or not at
// all. epoch is the run, or 0 for the last one with changes. Another call does nothing while the command runs or after
// it has succeeded. Apply does nothing if no run has changes. A task without a parent thread is a [fault.Precondition].
func (r *Runs) Apply(ctx context.Context, scope db.Scope, threadID string, epoch int64) (Used, error) {
	th, changed, err := r.changedBy(ctx, scope, threadID, epoch)
	if err != nil || changed.Patch == "" {
		return Used{}, err
	}
	if th.ParentThread == "" {
		return Used{}, fault.New(fault.Precondition, "no thread delegated this task, so there are no files to which its changes could be applied", "open a branch, or download the changes")
	}
	said, err := r.use(ctx, scope, th.ParentThread, "apply."+changed.Patch, entry.Command{
		Argv: []string{changesProgram, "apply", "-base=" + changed.PatchBase, changesDir(changed.Patch)}, Directory: sandbox.Workspace, Changes: changed.Patch,
	})
	return Used{Thread: th.ParentThread, Command: said}, err
}

// Branch pushes the changes of a run as one commit on a new branch of its environment's repository. name is the branch;
// if it is empty, the name derives from the task. Branch never changes an existing branch. Another call with the same
// name does nothing while the command runs or after it has succeeded. Branch does nothing if no run has changes. The
// error is a [fault.Precondition] if there is no repository, or no credential for its host.
func (r *Runs) Branch(ctx context.Context, scope db.Scope, threadID string, epoch int64, name string) (Used, error) {
	th, changed, err := r.changedBy(ctx, scope, threadID, epoch)
	if err != nil || changed.Patch == "" {
		return Used{}, err
	}
	if name = cmp.Or(name, branchName(th, changed)); !isBranch(name) {
		return Used{}, fault.New(fault.Invalid, "name: this is not a valid name for a branch", "use letters, digits and . _ - /, such as fix/login")
	}
	around, err := r.config.Boxes.Surroundings(ctx, scope, th.ID)
	if err != nil {
		return Used{}, err
	}
	remote, host, err := branchRemote(around.Environment.Recipe, changed)
	if err != nil {
		return Used{}, err
	}
	author, err := r.author(ctx, scope, th)
	if err != nil {
		return Used{}, err
	}
	said, err := r.use(ctx, scope, th.ID, "branch."+changed.Patch+"."+short(name), entry.Command{
		Argv: []string{changesProgram, "branch", "-name=" + name, "-to=" + remote, "-base=" + changed.PatchBase, "-title=" + cmp.Or(entry.OneLine(th.Name, 72), "Changes"),
			"-author=" + author, "-date=" + changed.Ended.UTC().Format(time.RFC3339), changesDir(changed.Patch)},
		Directory: sandbox.Workspace, Changes: changed.Patch,
	})
	return Used{Thread: th.ID, Command: said, Branch: name, URL: branchURL(remote, host, name)}, err
}

// author returns the handle of the bot that drives a thread, or arbe's name if the bot has left.
func (r *Runs) author(ctx context.Context, scope db.Scope, th thread.Thread) (author string, err error) {
	author = "arbe"
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		b, err := r.config.Bots.GetTx(ctx, tx, scope.House, th.Agent)
		if fault.CodeOf(err) == fault.NotFound {
			return nil // it left
		}
		author = b.Handle
		return err
	})
	return author, err
}

// branchRemote returns the remote repository for a branch with the changes of a run, and its host. Without one, the error is
// a [fault.Precondition].
func branchRemote(recipe sandbox.Recipe, changed Run) (remote, host string, err error) {
	remote, host = recipe.Remote()
	switch {
	case remote == "":
		return "", "", fault.New(fault.Precondition, "the environment of this thread has no repository at a host to which a branch could be pushed", "apply the changes, or download them")
	case !recipe.HasCredential(host):
		return "", "", fault.Newf(fault.Precondition, "give the environment one with: arbe env edit; then delegate, or continue in a fresh sandbox", "the environment of this thread has no credential for %s", host)
	case !commitForm.MatchString(changed.PatchBase):
		return "", "", fault.New(fault.Precondition, "these changes have no commit from which a branch could begin", "apply the changes, or download them")
	}
	return remote, host, nil
}

// nameRepositories sets the repository of each run whose changes can become a branch.
func (r *Runs) nameRepositories(ctx context.Context, scope db.Scope, th thread.Thread, list []Run) error {
	if !slices.ContainsFunc(list, func(run Run) bool { return run.Patch != "" }) {
		return nil
	}
	around, err := r.config.Boxes.Surroundings(ctx, scope, th.ID)
	if code := fault.CodeOf(err); code == fault.Precondition || code == fault.NotFound {
		return nil // without its environment, nothing can be pushed
	} else if err != nil {
		return err
	}
	for i, run := range list {
		if run.Patch == "" {
			continue
		}
		if remote, _, err := branchRemote(around.Environment.Recipe, run); err == nil {
			list[i].Repository = remote
		}
	}
	return nil
}

// changedBy returns a driven thread and one of its runs that has a patch: the run of an epoch, or the last one if epoch
// is 0. If no run has changes, the returned run has no patch.
func (r *Runs) changedBy(ctx context.Context, scope db.Scope, threadID string, epoch int64) (th thread.Thread, changed Run, err error) {
	if th, err = r.config.Threads.Get(ctx, scope, threadID); err != nil {
		return th, changed, err
	}
	list, _, err := r.List(ctx, scope, threadID, 0, mostAttempts)
	if err != nil {
		return th, changed, err
	}
	for _, run := range list {
		if run.Patch != "" && (epoch == 0 || run.Epoch == epoch) {
			return th, run, nil
		}
	}
	if epoch == 0 {
		return th, changed, nil
	}
	return th, changed, fault.Newf(fault.Precondition, "see what it did with: arbe thread result", "run %d has left no changes", epoch)
}

// use runs a command that uses changes, unless the last such command is still running. All attempts at the same use
// share id as the beginning of their ids. use skips other entries with such an id, because people and bots may choose
// the ids of their messages.
func (r *Runs) use(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	ref := log(scope.House, threadID)
	for n := 1; n <= mostAttempts; n++ {
		attempt := id + "." + strconv.Itoa(n)
		said, err = r.config.Log.Get(ctx, ref, attempt)
		if fault.CodeOf(err) == fault.NotFound {
			said, err = r.config.Command(ctx, scope, threadID, attempt, c)
			if fault.CodeOf(err) != fault.Exists {
				return said, err
			}
			said, err = r.config.Log.Get(ctx, ref, attempt) // somebody else was faster
		}
		if err != nil {
			return said, err
		}
		// Only commands that use wrote have Changes. Their arguments may differ, because a thread can be renamed.
		if there, ok := entry.As[entry.Command](said); !ok || there.Changes != c.Changes {
			continue
		}
		if _, err := r.config.Log.Get(ctx, ref, entry.ResultID(attempt)); fault.CodeOf(err) == fault.NotFound {
			return said, nil
		} else if err != nil {
			return said, err
		}
	}
	return said, fault.Newf(fault.Exhausted, "download the changes", "this was tried %d times", mostAttempts).WithReason(fault.LimitReached)
}

// Provide uploads to a sandbox the files of a command that uses the changes of a run. It does nothing for other
// commands.
func (r *Runs) Provide(ctx context.Context, scope db.Scope, h sandbox.Handle, c entry.Command) error {
	if c.Changes == "" {
		return nil
	}
	if r.config.Artifacts == nil {
		return fault.New(fault.Precondition, "this server keeps no artifacts", "use another server")
	}
	kept, err := r.config.Artifacts.Get(ctx, scope, c.Changes)
	if fault.CodeOf(err) == fault.NotFound { // a NotFound would say that the sandbox is gone
		return fault.New(fault.Precondition, "the changes have been deleted", "continue the task: its next run leaves its changes again")
	} else if err != nil {
		return err
	}
	content, err := r.config.Artifacts.Open(ctx, kept)
	if err != nil {
		return err
	}
	defer content.Close()
	program, err := r.putRunner(ctx, h, func(string) {})
	if err != nil {
		return err
	}
	if _, err := output(ctx, h, "ln", "-sfn", program, changesProgram); err != nil {
		return err
	}
	dir := changesDir(kept.ID)
	if err := h.Upload(ctx, dir+"/"+runner.ChangesPatch, 0o600, content); err != nil || h.Door() == "" {
		return err
	}
	return h.Upload(ctx, dir+"/"+runner.ChangesDoor, 0o600, strings.NewReader(h.Door()+sandbox.GitPath))
}

var (
	commitForm = lazyregexp.New(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	branchForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,149}$`)
)

// short returns a short form of a name, for an id.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// isBranch reports whether a name is a branch name that git and hosts accept, and that git cannot read as anything
// else.
func isBranch(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return branchForm.MatchString(name) && !strings.Contains(name, "..") && !strings.EqualFold(name, "HEAD") && !strings.HasPrefix(name, "refs/")
}

// branchName derives a name from a task: "arbe/fix-the-test-1q2w3e", and for a later run "arbe/fix-the-test-1q2w3e-2".
func branchName(th thread.Thread, changed Run) string {
	words := strings.FieldsFunc(strings.ToLower(th.Name), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	name := strings.Join(words, "-")
	name = strings.Trim(name[:min(len(name), 40)], "-")
	name = "arbe/" + strings.TrimPrefix(name+"-", "-") + th.ID[:min(len(th.ID), 6)]
	if changed.Epoch > 1 {
		name += fmt.Sprintf("-%d", changed.Epoch)
	}
	return name
}

// branchURL returns the page of a branch, or of the repository if the host's URLs are not known.
func branchURL(remote, host, name string) string {
	at := strings.TrimSuffix(remote, ".git")
	path := (&url.URL{Path: name}).EscapedPath()
	switch {
	case host == "github.com":
		return at + "/tree/" + path
	case strings.Contains(host, "gitlab"):
		return at + "/-/tree/" + path
	}
	return at
}
