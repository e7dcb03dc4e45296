package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// patch describes a run's changes in the working tree, as a file for git apply.
type patch struct {
	path, base, sha256 string
	bytes              int64
	files              int
	// missing describes changes that could not be saved; empty if everything was saved.
	missing string
}

// Limits of a patch.
const (
	maxPatch     = 64 << 20
	maxUntracked = 16 << 20 // of one file
	maxNew       = 20_000   // files
	saveFor      = 60 * time.Second
)

// tree saves the working tree of a run. It uses a separate repository, in dir, that borrows the objects of the tree's
// repository. So git neither reads the tree's configuration, which could name programs to run, nor changes its index.
type tree struct {
	work, dir string
	environ   []string
}

func newTree(s *setup) tree {
	t := tree{work: s.WorkDir, dir: filepath.Join(s.dir, "git")}
	for _, pair := range s.environ {
		if !strings.HasPrefix(pair, "GIT_") && !strings.HasPrefix(pair, "HOME=") {
			t.environ = append(t.environ, pair)
		}
	}
	t.environ = append(t.environ, "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_LITERAL_PATHSPECS=1", "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C")
	return t
}

// git runs git and returns its output.
func (t tree) git(ctx context.Context, stdin []byte, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := t.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func (t tree) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
		"-c", "core.untrackedCache=false", "-c", "diff.ignoreSubmodules=all", "-c", "core.quotePath=false"}, args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.work, t.environ, time.Second
	return cmd
}

// own runs git in the separate repository.
func (t tree) own(ctx context.Context, stdin []byte, args ...string) (string, error) {
	t.environ = append(t.environ[:len(t.environ):len(t.environ)], "GIT_DIR="+t.dir, "GIT_WORK_TREE="+t.work)
	return t.git(ctx, stdin, args...)
}

// errNoRepository and errNoGit report that there is nothing to compare with, and errNoTree that the tree is gone.
var (
	errNoRepository = errors.New("the working directory is not a git repository")
	errNoGit        = errors.New("the sandbox has no git")
	errNoTree       = errors.New("the working directory is gone")
)

// commit returns the commit that is checked out; empty in a repository without commits.
func (t tree) commit(ctx context.Context) (string, error) {
	if _, err := os.Stat(t.work); err != nil {
		return "", errNoTree
	}
	if _, err := exec.LookPath("git"); err != nil {
		return "", errNoGit
	}
	if _, err := t.git(ctx, nil, "rev-parse", "--git-common-dir"); err != nil {
		return "", errNoRepository
	}
	head, err := t.git(ctx, nil, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err != nil {
		return "", nil //nolint:nilerr // no commit yet
	}
	return strings.TrimSpace(head), nil
}

// emptyTree is git's id of the empty tree.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// save writes the difference between a commit and the working tree to a file, including untracked files that are not
// ignored. It includes later commits, because they would be lost with the sandbox. An empty base is the current
// commit.
func (t tree) save(ctx context.Context, base, to string) (p patch, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveFor, fmt.Errorf("it took more than %s", saveFor))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // git only says that it was killed
		}
	}()
	head, err := t.commit(ctx)
	if err != nil {
		return p, err
	}
	if err := t.borrow(ctx); err != nil {
		return p, err
	}
	defer os.RemoveAll(t.dir)
	base = t.existing(ctx, base, head)
	p.base = base
	if base == "" {
		base = emptyTree
	}
	if err := t.addChanged(ctx, base); err != nil {
		return p, err
	}
	if p.missing, err = t.addNew(ctx); err != nil {
		return p, err
	}
	return t.write(ctx, p, base, to)
}

// existing returns base if the repository has it, and otherwise the current commit, for example after a new clone.
func (t tree) existing(ctx context.Context, base, head string) string {
	if base == "" {
		return head
	}
	if _, err := t.own(ctx, nil, "cat-file", "-e", base+"^{commit}"); err != nil {
		return head
	}
	return base
}

// addChanged adds the changed files.
func (t tree) addChanged(ctx context.Context, base string) error {
	_, err := t.own(ctx, nil, "add", "--update")
	if err == nil {
		return nil
	}
	if _, err := t.own(ctx, nil, "read-tree", "--reset", base); err != nil {
		return err
	}
	_, err = t.own(ctx, nil, "add", "--update")
	return err
}

// borrow makes the separate repository.
func (t tree) borrow(ctx context.Context) error {
	common, err := t.git(ctx, nil, "rev-parse", "--path-format=absolute", "--git-common-dir", "--git-path", "index", "--git-path", "info/exclude")
	if err != nil {
		return err
	}
	paths := strings.Split(strings.TrimSuffix(common, "\n"), "\n")
	if len(paths) != 3 {
		return errors.New("the repository's path has an end of line in it")
	}
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	if err := t.init(ctx, filepath.Join(paths[0], "objects")); err != nil {
		return err
	}
	// The index spares git from reading every file, and the excludes are the user's choice. Either may be missing.
	_ = os.MkdirAll(filepath.Join(t.dir, "info"), 0o700)
	if copyFile(filepath.Join(t.dir, "index"), paths[1]) != nil {
		_ = os.Remove(filepath.Join(t.dir, "index")) // half of it is worse than none
	}
	_ = copyFile(filepath.Join(t.dir, "info/exclude"), paths[2])
	_, err = t.own(ctx, nil, "config", "core.bare", "false")
	return err
}

// init makes the separate repository, which borrows the objects of the other one.
func (t tree) init(ctx context.Context, objects string) error {
	format, err := t.git(ctx, nil, "rev-parse", "--show-object-format")
	if err != nil {
		return err
	}
	if _, err := t.git(ctx, nil, "init", "--quiet", "--bare", "--template=", "--object-format="+strings.TrimSpace(format), t.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(t.dir, "objects/info"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dir, "objects/info/alternates"), []byte(objects+"\n"), 0o600)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 256<<20 {
		return errors.New("not a file to copy")
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	// git considers a file unchanged if it is older than the index.
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// addNew adds the untracked files that are not too large.
func (t tree) addNew(ctx context.Context) (missing string, err error) {
	list, err := t.own(ctx, nil, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return "", err
	}
	add, missing := t.selectNew(list)
	if len(add) == 0 {
		return missing, nil
	}
	_, err = t.own(ctx, []byte(strings.Join(add, "\x00")), "add", "--force", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
	if err != nil {
		return "some new files cannot be read, and are left out", nil //nolint:nilerr // the others are there
	}
	return missing, nil
}

// selectNew returns the files of a list that are not too large, and says what is left out.
func (t tree) selectNew(list string) (add []string, missing string) {
	var large, nested int
	room := int64(maxPatch)
	for name := range strings.SplitSeq(list, "\x00") {
		switch info, err := os.Lstat(filepath.Join(t.work, name)); {
		case name == "" || err != nil:
		case strings.HasSuffix(name, "/"): // a nested repository
			nested++
		case !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0:
		case info.Size() > maxUntracked || info.Size() > room || len(add) >= maxNew:
			large++
		default:
			add = append(add, name)
			room -= info.Size()
		}
	}
	if large > 0 {
		missing = fmt.Sprintf("%d new files are too large, or too many, and are left out", large)
	} else if nested > 0 {
		missing = fmt.Sprintf("%d repositories within the working tree are left out", nested)
	}
	return add, missing
}

// write writes the patch.
func (t tree) write(ctx context.Context, p patch, base, to string) (patch, error) {
	changed, err := t.own(ctx, nil, "diff", "--cached", "--name-only", "-z", "--no-renames", base)
	if err != nil {
		return p, err
	}
	if p.files = strings.Count(changed, "\x00"); p.files == 0 {
		return p, nil
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return p, err
	}
	sum := sha256.New()
	out := &limited{to: io.MultiWriter(file, sum), left: maxPatch}
	t.environ = append(t.environ, "GIT_DIR="+t.dir, "GIT_WORK_TREE="+t.work)
	cmd := t.command(ctx, "diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", base)
	cmd.Stdout = out
	err = errors.Join(cmd.Run(), file.Close())
	if out.failed != nil {
		err = out.failed // git only says that nobody reads its output
	}
	if err != nil {
		return p, errors.Join(err, os.Remove(to))
	}
	p.path, p.bytes, p.sha256 = to, maxPatch-out.left, fmt.Sprintf("%x", sum.Sum(nil))
	return p, nil
}

// limited fails when more than left bytes are written to it.
type limited struct {
	to     io.Writer
	left   int64
	failed error
}

func (l *limited) Write(text []byte) (n int, err error) {
	if l.left -= int64(len(text)); l.left < 0 {
		l.failed = fmt.Errorf("the changes have more than %d MB", maxPatch>>20)
		return 0, l.failed
	}
	n, l.failed = l.to.Write(text)
	return n, l.failed
}
