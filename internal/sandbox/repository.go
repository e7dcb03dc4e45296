package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// repositories reads git repositories of this machine that recipes may name: those below one of its roots, directories
// that the operator chose. It is safe for concurrent use.
type repositories struct{ roots []string }

// bundle calls upload with all branches and tags of the repository at path, as a git bundle, and returns upload's
// error. A repository with any part outside the roots is a [fault.Forbidden], and one that cannot be read a
// [fault.Precondition]. Git reads the repository on this machine, but runs nothing that the repository asks to run.
func (r repositories) bundle(ctx context.Context, path string, upload func(io.Reader) error) error {
	path, err := r.allowed(ctx, path)
	if err != nil {
		return err
	}
	var complaint tail
	cmd := git(ctx, path, "bundle", "create", "--quiet", "-", "HEAD", "--all")
	cmd.Stderr = &complaint
	bundle, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return gitMissing(err)
	}
	uploadErr := upload(bundle)
	if uploadErr != nil {
		io.Copy(io.Discard, bundle) // otherwise git would wait forever for a reader
	}
	if err := cmd.Wait(); err != nil {
		return unreadable(path, complaint.String(), err)
	}
	return uploadErr
}

// allowed returns the real path of a repository, all parts of which must be below a root, because a .git that is a link
// or a file may lead elsewhere.
func (r repositories) allowed(ctx context.Context, path string) (string, error) {
	denied := fault.Newf(fault.Forbidden, "ask the operator to add its directory to ARBE_REPO_ROOTS, or use a repository's URL",
		"repositories at %s are not allowed on this server", path)
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && r.belowRoot(filepath.Clean(path)) {
		return "", fault.Newf(fault.Precondition, "correct the environment's repo, or create the repository",
			"there is no repository at %s", path).Because(err)
	}
	if err != nil || !r.belowRoot(real) {
		return "", denied.Because(err)
	}
	var complaint tail
	cmd := git(ctx, real, "rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--git-path", "objects")
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", gitMissing(err)
	} else if err != nil {
		return "", unreadable(path, complaint.String(), err)
	}
	walk := containment{ctx: ctx, repositories: r, seen: map[string]bool{}}
	for dir := range strings.Lines(string(out)) {
		if err := walk.directory(strings.TrimSuffix(dir, "\n")); err != nil {
			return "", denied.Because(err)
		}
	}
	return real, nil
}

// belowRoot reports whether a path is a root or below one.
func (r repositories) belowRoot(path string) bool {
	return slices.ContainsFunc(r.roots, func(root string) bool {
		real, err := filepath.EvalSymlinks(root)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(real, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// containment walks through a repository's own files, and fails if they lead git to anything that is not below a root.
// Git quotes parts of links' targets in its error messages, and puts the objects of alternates into the bundle.
type containment struct {
	ctx          context.Context
	repositories repositories
	seen         map[string]bool // directories already checked
}

// directory checks a directory and everything in it.
func (c containment) directory(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || c.seen[dir] {
		return err
	}
	c.seen[dir] = true
	if !c.repositories.belowRoot(dir) {
		return errors.New("it leads to " + dir)
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case e.Type() == fs.ModeSymlink:
			if _, err := os.Stat(path); err == nil { // a link that leads nowhere is harmless, because git cannot read it
				return c.link(path)
			}
		case e.Name() == "alternates" && filepath.Base(filepath.Dir(path)) == "info":
			return c.alternates(path)
		}
		return nil
	})
}

// link checks the target of a link.
func (c containment) link(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		return c.directory(target)
	}
	if !c.repositories.belowRoot(target) {
		return errors.New("it leads to " + target)
	}
	return nil
}

// alternates checks the object directories that a file names.
func (c containment) alternates(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		// Git quotes unusual names. Reading such a name as it is would check another directory than git reads.
		if strings.HasPrefix(line, `"`) {
			return errors.New("an alternate has a quoted name: " + line)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(filepath.Dir(filepath.Dir(file)), line)
		}
		err := c.directory(line)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// modest limits the memory of git, whatever the repository's own configuration says. Otherwise git holds several large
// files at a time to compare them, in memory that grows with the files.
var modest = []string{
	"-c", "core.bigFileThreshold=16m", "-c", "core.deltaBaseCacheLimit=64m", "-c", "pack.threads=2", "-c", "pack.windowMemory=64m",
	"-c", "pack.window=10", "-c", "pack.depth=50", "-c", "pack.deltaCacheSize=64m",
}

// git returns a git command on this machine that reads only the repository at path. It runs nothing that the
// repository's own configuration asks for: no hooks, no monitor, and no transport, which a repository with missing
// objects would use to fetch them.
func git(ctx context.Context, path string, args ...string) *exec.Cmd {
	all := slices.Concat([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false"}, modest, []string{"-C", path}, args)
	cmd := exec.CommandContext(ctx, "git", all...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(path), "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1",
	}
	return cmd
}

func gitMissing(err error) error {
	return fault.New(fault.Precondition, "git is not installed on the server", "install git").Because(err)
}

func unreadable(path, complaint string, err error) error {
	return fault.Newf(fault.Precondition, "check that it is a git repository with at least one commit",
		"the repository %s cannot be read: %s", path, complaint).Because(err)
}
