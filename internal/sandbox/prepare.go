package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// preparationTimeout bounds each step of making a box ready.
	preparationTimeout = 30 * time.Minute
	// preparationOutput is how much of the end of a step's output is kept, in bytes.
	preparationOutput = 8 << 10
	// bundlePath is where a repository of this machine is put into a box for the clone.
	bundlePath = Home + "/.arbe-repo.bundle"
)

// prepare runs the recipe's steps in a new box.
func (r *Resolver) prepare(ctx context.Context, d Driver, ref string, recipe Recipe) (steps []entry.PreparationStep, err error) {
	run := func(name string, argv ...string) error {
		var out tail
		result, err := d.Exec(ctx, ref, Command{Argv: argv, Stdout: &out, Stderr: &out, Timeout: preparationTimeout,
			Env: map[string]string{"GIT_TERMINAL_PROMPT": "0"}})
		if err != nil {
			return err
		}
		steps = append(steps, entry.PreparationStep{Name: name, ExitCode: result.ExitCode, DurationMS: result.Duration.Milliseconds(), Output: out.String()})
		if result.ExitCode != 0 {
			return fault.Newf(fault.Precondition, "mend the environment, then run the command again",
				"the sandbox could not be made ready: %s failed with exit code %d\n%s", name, result.ExitCode, out.String())
		}
		return nil
	}
	if recipe.Repo != "" {
		source := recipe.Repo
		if path, local := localRepo(recipe.Repo); local {
			if err := r.uploadBundle(ctx, d, ref, path); err != nil {
				return steps, err
			}
			source = bundlePath
		}
		const clone = `set -e; git clone --quiet -- "$1" .; git remote set-url origin "$2"; if [ -n "$3" ]; then git checkout --quiet "$3" --; fi; rm -f "` + bundlePath + `"`
		if err := run("clone", "/bin/sh", "-c", clone, "clone", source, recipe.Repo, recipe.Ref); err != nil {
			return steps, err
		}
	}
	if recipe.Setup != "" {
		return steps, run("setup", "/bin/sh", "-e", "-c", recipe.Setup)
	}
	return steps, nil
}

// localRepo tells whether a repository is a directory of this machine, and which.
func localRepo(repo string) (path string, local bool) {
	path, _ = strings.CutPrefix(repo, "file://")
	return path, filepath.IsAbs(path)
}

// checkRepo says what is wrong with a repository and its ref as a recipe names them. Both end up as
// arguments of git, so neither may look like an option.
func checkRepo(repo, ref string) error {
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, " \n\x00") {
		return fault.New(fault.Invalid, "ref: it is not the name of a branch, a tag or a commit", "give one, or leave it out")
	}
	if repo == "" {
		return nil
	}
	if _, local := localRepo(repo); local {
		return nil
	}
	u, err := url.Parse(repo)
	if err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "ssh" || u.Scheme == "git") {
		return nil
	}
	return fault.New(fault.Invalid, "repo: it is not the address of a git repository",
		"write it as https://host/path, or as an absolute path on the server")
}

// uploadBundle puts a repository of this machine into a box. The repository must be below a root that the
// operator allows; git reads it here, and everything else happens inside.
func (r *Resolver) uploadBundle(ctx context.Context, d Driver, ref, path string) error {
	path, err := r.allowedRepo(ctx, path)
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
	uploadErr := d.Upload(ctx, ref, bundlePath, 0o600, bundle)
	if uploadErr != nil {
		io.Copy(io.Discard, bundle) // let git end
	}
	if err := cmd.Wait(); err != nil {
		return unreadableRepo(path, complaint.String(), err)
	}
	return uploadErr
}

// git is a command of git on this machine that reads the repository at path and no other. What the
// repository's own configuration asks for is not run: no hook, no monitor, and no transport, which a
// repository that lacks objects would start to fetch them.
func git(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", path}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(path), "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1",
	}
	return cmd
}

func gitMissing(err error) error {
	return fault.New(fault.Precondition, "git is not installed on the server", "install git").Because(err)
}

func unreadableRepo(path, complaint string, err error) error {
	return fault.Newf(fault.Precondition, "check that it is a git repository with at least one commit",
		"the repository %s cannot be read: %s", path, complaint).Because(err)
}

// allowedRepo is the real path of a repository, which must lie below an allowed root with all that it
// consists of: a .git that is a link or a file may lead elsewhere.
func (r *Resolver) allowedRepo(ctx context.Context, path string) (string, error) {
	denied := fault.Newf(fault.Forbidden, "ask the operator to add its directory to ARBE_REPO_ROOTS, or use a repository's URL",
		"repositories at %s may not be used on this server", path)
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && r.belowRoot(filepath.Clean(path)) {
		return "", fault.Newf(fault.Precondition, "correct the environment's repo, or make the repository",
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
		return "", unreadableRepo(path, complaint.String(), err)
	}
	for dir := range strings.Lines(string(out)) {
		if dir, err = filepath.EvalSymlinks(strings.TrimSuffix(dir, "\n")); err != nil || !r.belowRoot(dir) {
			return "", denied.Because(err)
		}
	}
	return real, nil
}

// belowRoot tells whether a path is an allowed root or lies below one.
func (r *Resolver) belowRoot(path string) bool {
	return slices.ContainsFunc(r.repoRoots, func(root string) bool {
		real, err := filepath.EvalSymlinks(root)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(real, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// tail keeps the end of what is written to it, from both streams of a command at once.
type tail struct {
	mu      sync.Mutex
	kept    []byte
	dropped int
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - preparationOutput; over > preparationOutput {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.dropped += over
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept, dropped := t.kept, t.dropped
	if over := len(kept) - preparationOutput; over > 0 {
		kept, dropped = kept[over:], dropped+over
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(string(kept), "\uFFFD"), "\x00", "\u2400")
	if dropped > 0 {
		text = fmt.Sprintf("… %d bytes left out …\n%s", dropped, text)
	}
	return strings.TrimRight(text, "\n")
}
