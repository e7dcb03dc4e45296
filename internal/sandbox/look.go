package sandbox

import (
	"bytes"
	"context"
	"path"
	"strconv"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Look calls do with the thread's sandbox if it is running, to look at its files. Look neither builds nor starts a
// sandbox: if none is running, the error has the reason [fault.NoSandbox]. The sandbox counts as used until do returns.
func (r *Resolver) Look(ctx context.Context, scope db.Scope, threadID string, do func(Handle) error) error {
	box, err := r.current(ctx, scope, threadID)
	switch {
	case err != nil:
		return reachable(err, "files")
	case box.ID == "":
		return noSandbox()
	case box.Status == StatusPending:
		return notRunning("the sandbox "+box.ID+" is being built", "wait until it is ready")
	case box.Status != StatusLive:
		return isGone(box.ID)
	}
	h, err := r.handle(ctx, scope, box)
	if err != nil {
		return err
	}
	d, tells := h.driver.(Dialer)
	if !tells {
		return fault.Newf(fault.Precondition, "run a command in the thread, such as ls", "the driver %s does not say whether a sandbox is running", h.Provider)
	}
	asleep, err := d.Asleep(ctx, h.Ref)
	if err == nil && asleep {
		return notRunning("the sandbox "+h.ID+" is stopped", "run a command in the thread, such as pwd, which starts it")
	}
	if err == nil {
		ended := r.Sandboxes.KeepUsed(ctx, scope, h.ID)
		err = do(h)
		ended()
	}
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if alive, failed := r.Reaper.Confirm(ctx, scope, box.ID); failed != nil || alive != Gone {
		return err
	}
	return isGone(box.ID)
}

func isGone(id string) error {
	return notRunning("the sandbox "+id+" no longer exists", "run a command in the thread, which builds one with the saved files")
}

// Changes are the differences between the repositories of a working tree and the commits at which they were cloned, or their
// last commits.
type Changes struct {
	// Patch is a patch without the content of binary files. More means that this is only its beginning, in whole lines.
	Patch []byte
	More  bool
	// LeftOut is the number of files and folders that the patch leaves out because they are too large or cannot be read.
	LeftOut int
}

// Changes returns the current changes in a sandbox, with new files that are not ignored: since the clone, or only what is not
// committed. It reads up to most bytes, and leaves the tree as it is. If the tree has no repository, the error is a [fault.Precondition].
func (r *Resolver) Changes(ctx context.Context, scope db.Scope, h Handle, uncommitted bool, most int) (c Changes, err error) {
	// Only one process at a time may work in the temporary repository; see savePatch.
	unlock, err := r.Reaper.locks.lock(ctx, h.ID)
	if err != nil {
		return c, err
	}
	defer unlock()
	tree, err := r.Sandboxes.Tree(ctx, scope, h.ID)
	if err != nil {
		return c, err
	}
	list := h.recipe.checkouts()
	if len(list) == 0 {
		list = []Repository{{Folder: "."}}
	}
	repositories := 0
	for _, repo := range list {
		if c.More {
			break
		}
		since := tree.commits[repo.Folder]
		if uncommitted {
			since = "" // savePatch then compares with the last commit
		}
		is, err := c.add(ctx, h, repo.Folder, since, most)
		if err != nil {
			return c, err
		}
		if is {
			repositories++
		}
	}
	if repositories == 0 {
		return c, fault.New(fault.Precondition, "the working tree is not a git repository with a commit, so there is nothing to compare it with", "look at its files")
	}
	return c, nil
}

// add adds the changes in one folder since a commit. It reports whether the folder is a repository.
func (c *Changes) add(ctx context.Context, h Handle, folder, commit string, most int) (is bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := ""
	if folder != "." {
		prefix = folder + "/"
	}
	var said tail
	out := &firstBytes{most: most - len(c.Patch), full: cancel}
	result, err := h.Exec(ctx, Command{
		Argv: []string{"/bin/sh", "-c", savePatch, "changes", commit, path.Join(Workspace, folder), prefix, ""},
		Dir:  "/", Stdout: out, Stderr: &said, Timeout: saveTimeout,
	})
	words := described.FindStringSubmatch(said.String())
	switch {
	case out.more:
		c.More = true
		c.Patch = append(c.Patch, out.kept[:bytes.LastIndexByte(out.kept, '\n')+1]...)
		return true, nil
	case err != nil:
		return false, err
	case result.ExitCode == notRepository:
		return false, nil
	case result.ExitCode != 0 || words == nil:
		return false, fault.Newf(fault.Precondition, "check the disk of the sandbox and its git", "the sandbox could not compare its files (exit code %d): %s", result.ExitCode, entry.OneLine(said.String(), 200))
	}
	c.Patch = append(c.Patch, out.kept...)
	left, _ := strconv.Atoi(words[3])
	c.LeftOut += left
	return true, nil
}

// firstBytes keeps the first bytes that are written to it, and calls full when there are more.
type firstBytes struct {
	kept []byte
	most int
	more bool
	full func()
}

func (w *firstBytes) Write(p []byte) (int, error) {
	room := w.most - len(w.kept)
	w.kept = append(w.kept, p[:min(len(p), room)]...)
	if len(p) > room && !w.more {
		w.more = true
		w.full()
	}
	return len(p), nil
}
