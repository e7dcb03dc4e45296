package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// branch is a branch to push.
type branch struct{ name, remote, base, title, author, date string }

// push pushes the patch as one commit on its base, to a new branch. Pushing it again does nothing. It never changes
// an existing branch, nor the one that the repository names as its default.
func (c *changes) push(ctx context.Context, b branch, out io.Writer) error {
	if err := c.borrowShallow(ctx); err != nil {
		return err
	}
	commit, err := c.commitOf(ctx, b)
	if err != nil {
		return err
	}
	url, err := c.behindDoor(b.remote)
	if err != nil {
		return err
	}
	isThere, err := c.isPushed(ctx, b, url, commit)
	switch {
	case err != nil:
		return err
	case isThere:
		fmt.Fprintf(out, "The branch %s already exists.\n%s\n", b.name, b.remote)
		return nil
	}
	ref := b.ref()
	// The lease lets git create the branch, but not move one that somebody has created meanwhile.
	said, err := c.run(ctx, "push", "--no-follow-tags", "--recurse-submodules=no", "--force-with-lease="+ref+":", url, commit+":"+ref)
	if said != "" {
		fmt.Fprintln(out, said)
	}
	if err != nil {
		return notChanged("The branch was not pushed.")
	}
	fmt.Fprintf(out, "Pushed the branch %s to %s\n", b.name, b.remote)
	return nil
}

func (b branch) ref() string { return "refs/heads/" + b.name }

// borrowShallow makes the separate repository, which is as shallow as the clone.
func (c *changes) borrowShallow(ctx context.Context) error {
	if err := c.tree.borrow(ctx); err != nil {
		return err
	}
	common, err := c.tree.git(ctx, nil, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	_ = copyFile(filepath.Join(c.tree.dir, "shallow"), filepath.Join(strings.TrimSuffix(common, "\n"), "shallow")) // a full clone has no such file
	return nil
}

// isPushed reports whether the branch is there and has the commit.
func (c *changes) isPushed(ctx context.Context, b branch, url, commit string) (bool, error) {
	said, err := c.tree.own(ctx, nil, "ls-remote", "--symref", url, "HEAD", b.ref())
	if err != nil {
		return false, notChanged("%s\n%s cannot be read.", err, b.remote)
	}
	return checkRemote(said, b.ref(), commit)
}

// commitOf makes a commit of the patch. The same patch always makes the same commit.
func (c *changes) commitOf(ctx context.Context, b branch) (string, error) {
	base := b.base
	if !isCommit(base) {
		return "", notChanged("The patch has no base commit, so it cannot be a branch.")
	}
	if _, err := c.tree.own(ctx, nil, "cat-file", "-e", base+"^{commit}"); err != nil {
		return "", notChanged("The commit %s, to which the patch applies, is not in the repository.", base[:12])
	}
	if _, err := c.tree.own(ctx, nil, "read-tree", "--reset", base); err != nil {
		return "", err
	}
	if err := c.merge(ctx); err != nil {
		return "", err
	}
	after, err := c.writeTree(ctx)
	if err != nil {
		return "", err
	}
	if _, err := c.between(ctx, base+"^{tree}", after); err != nil {
		return "", err
	}
	t := c.tree
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.environ = append(t.environ[:len(t.environ):len(t.environ)], "GIT_"+who+"_NAME="+cmp.Or(b.author, "arbe"), "GIT_"+who+"_EMAIL=arbe@arbe.invalid", "GIT_"+who+"_DATE="+b.date)
	}
	id, err := t.own(ctx, nil, "commit-tree", after, "-p", base, "-m", cmp.Or(b.title, "Changes"))
	return strings.TrimSpace(id), err
}

// behindDoor returns a repository's URL behind the server's door, or the remote itself if there is no door.
func (c *changes) behindDoor(remote string) (string, error) {
	door, err := os.ReadFile(filepath.Join(c.dir, ChangesDoor))
	rest, https := strings.CutPrefix(remote, "https://")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return remote, nil
	case err != nil:
		return "", err
	case !https:
		return "", notChanged("%s is no repository at https://.", remote)
	}
	return strings.TrimSpace(string(door)) + rest, nil
}

// checkRemote reads git's list of a repository's default branch and of the branch to create. isThere means that the
// branch already has the commit.
func checkRemote(said, ref, commit string) (isThere bool, err error) {
	head, there := "", ""
	for line := range strings.Lines(said) {
		what, name, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		if target, symbolic := strings.CutPrefix(what, "ref: "); symbolic && name == "HEAD" {
			head = target
		} else if name == ref {
			there = what
		}
	}
	name := strings.TrimPrefix(ref, "refs/heads/")
	switch {
	case head == "":
		return false, notChanged("The repository does not say which branch is its default one, so none is created.")
	case head == ref:
		return false, notChanged("%s is the default branch of the repository. Choose another name.", name)
	case there != "" && there != commit:
		return false, notChanged("The branch %s already exists with other content. Choose another name.", name)
	}
	return there == commit, nil
}
