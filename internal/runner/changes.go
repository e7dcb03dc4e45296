package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
)

// This file handles the changes of a run on a person's request. It applies them to the working tree of the current
// directory, or pushes them as a branch. The changes are in a directory with the files named below. The patch may
// come from a hostile program, and so may the repository, so git reads neither the repository's configuration nor its
// hooks.

// The files in the directory of a run's changes.
const (
	// ChangesPatch is the patch. ChangesDoor holds the URL of the server's door for git, which adds the credentials; it
	// may be missing.
	ChangesPatch = "changes.patch"
	ChangesDoor  = "door"
)

// errChanges says, for people, why the changes were neither applied nor pushed. Nothing was changed.
type errChanges struct{ says string }

func (e *errChanges) Error() string { return e.says }

func notChanged(format string, args ...any) error { return &errChanges{fmt.Sprintf(format, args...)} }

// changes are the changes of a run, next to the repository in which they are examined.
type changes struct {
	tree  tree
	dir   string
	patch string
	lock  *os.File
}

// openChanges prepares a separate repository for a working tree. It locks the tree, so one process at a time works on
// it.
func openChanges(ctx context.Context, work, dir string, environ []string) (_ *changes, err error) {
	c := &changes{dir: dir, patch: filepath.Join(dir, ChangesPatch)}
	if c.patch, err = filepath.Abs(c.patch); err != nil {
		return nil, err
	}
	info, err := os.Stat(c.patch)
	switch {
	case err != nil || !info.Mode().IsRegular():
		return nil, notChanged("The patch is missing. Try again.")
	case info.Size() > maxPatch:
		return nil, notChanged("The patch has more than %d MB.", maxPatch>>20)
	}
	c.tree = newTree(&setup{Spec: Spec{WorkDir: work}, environ: environ})
	c.tree.environ = append(c.tree.environ, "GIT_ALLOW_PROTOCOL=http:https")
	if _, err := c.tree.commit(ctx); err != nil {
		return nil, notChanged("%s.", sentence(err))
	}
	if below, err := c.tree.git(ctx, nil, "rev-parse", "--show-prefix"); err != nil || strings.TrimSpace(below) != "" {
		return nil, notChanged("%s is not the top of a git repository.", work)
	}
	if c.lock, err = os.Open(work); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(c.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		c.lock.Close()
		return nil, notChanged("Other changes are being applied here. Try again.")
	}
	c.tree.dir = filepath.Join(filepath.Dir(c.patch), "git")
	return c, nil
}

func (c *changes) close() {
	_ = os.RemoveAll(c.tree.dir)
	_ = c.lock.Close()
}

// apply applies the patch to the working tree, completely or not at all. It respects uncommitted changes: it merges
// the patch with them in a separate repository and index. Only a result without conflicts is written to the files. If the
// process is killed while it writes, applying the patch again writes the rest. base is the commit on which the patch is
// based; empty if it is not known.
func (c *changes) apply(ctx context.Context, base string, out io.Writer) error {
	d, err := c.difference(ctx, base)
	if err != nil {
		return err
	}
	if len(d.list) == 0 {
		fmt.Fprintln(out, "These changes have already been applied.")
		return nil
	}
	if err := os.Rename(c.index()+".before", c.index()); err != nil {
		return err
	}
	if err := c.write(ctx, d.before, d.after, d.list); err != nil {
		return err
	}
	for _, f := range d.list {
		fmt.Fprintf(out, "%s %s\n", f.letter, shownPath(f.path))
	}
	fmt.Fprintf(out, "%s applied.\n", counted(len(d.list), "file"))
	return nil
}

// difference is what the patch changes: the trees before and after it, and the files.
type difference struct {
	before, after string
	list          []changed
}

// index is the index of the separate repository.
func (c *changes) index() string { return filepath.Join(c.tree.dir, "index") }

// difference merges the patch with the working tree in the separate repository. The list is empty if the changes are
// there already.
func (c *changes) difference(ctx context.Context, base string) (d difference, err error) {
	if err := c.tree.borrow(ctx); err != nil {
		return d, err
	}
	if _, err := c.tree.own(ctx, nil, "cat-file", "-e", base+"^{commit}"); err != nil || !isCommit(base) {
		base = ""
	}
	if d.before, err = c.stage(ctx, base); err != nil {
		return d, err
	}
	if _, err := c.tree.own(ctx, nil, "apply", "--cached", "--check", "--reverse", c.patch); err == nil {
		return d, nil
	}
	if err := os.Rename(c.index(), c.index()+".before"); err != nil {
		return d, err
	}
	if err := copyFile(c.index(), c.index()+".before"); err != nil {
		return d, err
	}
	if err := c.restoreDeleted(ctx, base); err != nil {
		return d, err
	}
	if err := c.merge(ctx); err != nil {
		return d, err
	}
	if d.after, err = c.writeTree(ctx); err == nil {
		d.list, err = c.between(ctx, d.before, d.after)
	}
	return d, err
}

// stage adds the working tree, as far as the patch concerns it, to the index, and returns its tree.
func (c *changes) stage(ctx context.Context, base string) (tree string, err error) {
	if err := c.withoutRenames(ctx, base); err != nil {
		return "", err
	}
	if _, err := os.Stat(c.index()); err != nil { // a repository without a commit
		if _, err := c.tree.own(ctx, nil, "read-tree", "--empty"); err != nil {
			return "", err
		}
	}
	if _, err := c.tree.own(ctx, nil, "add", "--update"); err != nil {
		return "", err
	}
	if err := c.addNamed(ctx); err != nil {
		return "", err
	}
	if tree, err = c.writeTree(ctx); err != nil {
		return "", notChanged("The working tree has conflicts already. Resolve them first.")
	}
	return tree, nil
}

// addNamed adds to the index files that the patch names but the repository does not know. An earlier use of the patch
// may have created them, or they are in its way.
func (c *changes) addNamed(ctx context.Context) error {
	list, err := c.tree.own(ctx, nil, "apply", "--numstat", "-z", c.patch)
	if err != nil {
		return notChanged("git cannot read the patch, and nothing was changed: %s", entry.OneLine(err.Error(), 500))
	}
	var there []string
	for line := range strings.SplitSeq(list, "\x00") {
		_, rest, _ := strings.Cut(line, "\t")
		_, name, ok := strings.Cut(rest, "\t")
		if !ok || !isHarmless(name) {
			continue // git refuses it below
		}
		if info, err := os.Lstat(filepath.Join(c.tree.work, name)); err == nil && (info.Mode().IsRegular() && info.Size() <= maxUntracked || info.Mode()&os.ModeSymlink != 0) {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return nil
	}
	if _, err := c.tree.own(ctx, []byte(strings.Join(there, "\x00")), "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"); err != nil {
		return notChanged("Nothing was changed: %s", entry.OneLine(err.Error(), 500))
	}
	return nil
}

// restoreDeleted restores in the index the files that the patch deletes and that are already missing. An earlier use of the
// patch may have deleted them.
func (c *changes) restoreDeleted(ctx context.Context, base string) error {
	if base == "" {
		return nil
	}
	gone, err := c.deletedBefore(ctx)
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		return nil
	}
	all, err := c.tree.own(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", base)
	if err != nil {
		return err
	}
	var entries strings.Builder
	for line := range strings.SplitSeq(all, "\x00") {
		if _, name, _ := strings.Cut(line, "\t"); gone[name] {
			entries.WriteString(line + "\x00")
		}
	}
	_, err = c.tree.own(ctx, []byte(entries.String()), "update-index", "-z", "--index-info")
	return err
}

// deletedBefore returns the files that the patch deletes and that are missing.
func (c *changes) deletedBefore(ctx context.Context) (map[string]bool, error) {
	list, err := c.tree.own(ctx, nil, "apply", "--summary", c.patch)
	if err != nil {
		return nil, notChanged("git cannot read the patch, and nothing was changed: %s", entry.OneLine(err.Error(), 500))
	}
	gone := map[string]bool{}
	for line := range strings.Lines(list) {
		rest, deletes := strings.CutPrefix(line, " delete mode ")
		_, name, ok := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
		if !deletes || !ok {
			continue
		}
		if plain, err := strconv.Unquote(name); err == nil {
			name = plain
		}
		if _, err := os.Lstat(filepath.Join(c.tree.work, name)); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			gone[name] = true
		}
	}
	return gone, nil
}

// withoutRenames replaces the patch by one that deletes and adds files instead of renaming them. Such a patch still
// applies if an earlier use of it has already written some of these files.
func (c *changes) withoutRenames(ctx context.Context, base string) error {
	list, err := c.tree.own(ctx, nil, "apply", "--summary", c.patch)
	if err != nil || base == "" || !strings.HasPrefix(list, " rename ") && !strings.Contains(list, "\n rename ") {
		return nil //nolint:nilerr // git refuses the patch later
	}
	alone := *c
	alone.tree.environ = append(alone.tree.environ[:len(alone.tree.environ):len(alone.tree.environ)], "GIT_INDEX_FILE="+filepath.Join(c.tree.dir, "index.base"))
	if _, err := alone.tree.own(ctx, nil, "read-tree", base); err != nil {
		return err
	}
	if _, err := alone.run(ctx, "apply", "--cached", "--whitespace=nowarn", c.patch); err != nil {
		return nil //nolint:nilerr // git refuses the patch later
	}
	after, err := alone.writeTree(ctx)
	if err != nil {
		return err
	}
	patch, err := c.tree.own(ctx, nil, "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", base, after)
	if err != nil {
		return err
	}
	c.patch = filepath.Join(c.tree.dir, "changes.patch")
	return os.WriteFile(c.patch, []byte(patch), 0o600)
}

// merge applies the patch to the index, and merges the parts that do not apply as they are.
func (c *changes) merge(ctx context.Context) error {
	said, err := c.run(ctx, "apply", "--cached", "--3way", "--whitespace=nowarn", c.patch)
	if err == nil {
		return nil
	}
	if strings.Contains(said, "cannot be used together") { // git before 2.32
		if said, err = c.run(ctx, "apply", "--cached", "--whitespace=nowarn", c.patch); err == nil {
			return nil
		}
	}
	conflicts, failed := c.conflicts(ctx, said)
	if failed != nil {
		return failed
	}
	if len(conflicts) == 0 {
		return notChanged("git refuses the patch, and nothing was changed: %s", entry.OneLine(cmp.Or(said, err.Error()), 500))
	}
	var b strings.Builder
	for _, name := range conflicts {
		fmt.Fprintf(&b, "conflict: %s\n", shownPath(name))
	}
	return notChanged("%sNothing was changed, because %s in the way of the changes.", b.String(), are(len(conflicts), "file"))
}

// conflicts returns the files that are in the way of the patch, after git said why it does not apply.
func (c *changes) conflicts(ctx context.Context, said string) (conflicts []string, err error) {
	list, err := c.tree.own(ctx, nil, "ls-files", "--unmerged", "-z")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(list, "\x00") {
		if _, name, ok := strings.Cut(line, "\t"); ok && !slices.Contains(conflicts, name) {
			conflicts = append(conflicts, name)
		}
	}
	for line := range strings.Lines(said) {
		if name := refusedFile(strings.TrimSuffix(line, "\n")); name != "" && !slices.Contains(conflicts, name) {
			conflicts = append(conflicts, name)
		}
	}
	return conflicts, nil
}

// refusedFile returns the file named in a line in which git refuses a patch; empty if there is none.
func refusedFile(line string) string {
	line, _ = strings.CutPrefix(line, "error: ")
	for _, why := range []string{"patch does not apply", "already exists in index", "already exists in working directory", "does not exist in index", "does not match index"} {
		if name, ok := strings.CutSuffix(line, ": "+why); ok {
			return name
		}
	}
	return ""
}

// inTheWay returns an error that names the files in the way of an update of the working tree.
func inTheWay(said string, err error) error {
	var b strings.Builder
	for line := range strings.Lines(said) {
		if name := heldFile(line); name != "" {
			fmt.Fprintf(&b, "conflict: %s\n", shownPath(name))
		}
	}
	if b.Len() == 0 {
		return notChanged("git cannot write the changes: %s", entry.OneLine(cmp.Or(said, err.Error()), 500))
	}
	return notChanged("%sNothing was changed, because these files are in the way of the changes.", b.String())
}

// heldFile returns the file named in a line in which git refuses to write a file; empty if there is none.
func heldFile(line string) string {
	for _, before := range []string{"Entry '", "Untracked working tree file '", "Updating '"} {
		_, rest, found := strings.Cut(line, before)
		if end := strings.LastIndex(rest, "' "); found && end > 0 {
			return rest[:end]
		}
	}
	return ""
}

// changed is a file that differs between two trees.
type changed struct{ path, letter string }

// between returns the differences between two trees. It refuses changes that patches of runs must not make.
func (c *changes) between(ctx context.Context, before, after string) (list []changed, err error) {
	text, err := c.tree.own(ctx, nil, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", before, after)
	if err != nil {
		return nil, err
	}
	fields := strings.Split(text, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		raw := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(raw) != 5 {
			return nil, errors.New("git lists the changes in an unknown form")
		}
		oldMode, newMode, newID, letter, name := raw[0], raw[1], raw[3], raw[4], fields[i+1]
		switch {
		case oldMode == "160000" || newMode == "160000":
			return nil, notChanged("Nothing was changed, because the patch changes the submodule %s.", shownPath(name))
		case !isHarmless(name):
			return nil, notChanged("Nothing was changed, because the patch names %s.", shownPath(name))
		case newMode == "120000":
			target, err := c.tree.own(ctx, nil, "cat-file", "blob", newID)
			if err != nil {
				return nil, err
			}
			if filepath.IsAbs(target) || isDetour(target) || !isHarmless(filepath.Join(filepath.Dir(name), target)) {
				return nil, notChanged("Nothing was changed, because the link %s could lead out of the working tree.", shownPath(name))
			}
		}
		list = append(list, changed{name, letter})
	}
	return list, nil
}

// isCommit reports whether a text is the id of a commit.
func isCommit(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}

// isDetour reports whether ".." in the target of a link follows the name of a folder. If that folder is itself a link,
// ".." starts from the link's target, so the text does not show where it leads.
func isDetour(target string) bool {
	named := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}

// isHarmless reports whether a path stays in the working tree and outside git's own files.
func isHarmless(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		part = strings.ToLower(strings.TrimRight(part, ". "))
		if part == ".git" || part == "git~1" {
			return false
		}
	}
	return filepath.IsLocal(name)
}

func (c *changes) writeTree(ctx context.Context) (string, error) {
	id, err := c.tree.own(ctx, nil, "write-tree")
	return strings.TrimSpace(id), err
}

// run runs git in the separate repository, and returns its output.
func (c *changes) run(ctx context.Context, args ...string) (said string, err error) {
	t := c.tree
	t.environ = append(t.environ[:len(t.environ):len(t.environ)], "GIT_DIR="+t.dir, "GIT_WORK_TREE="+t.work)
	cmd := t.command(ctx, args...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	return strings.TrimSpace(both.String()), err
}

// shownPath returns a path that is safe to show in a terminal, on one line.
func shownPath(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		name = quoted
	}
	return entry.OneLine(name, 300)
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}
