package sandbox

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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

// build makes a box and makes it ready: the repository cloned, the setup script run. It returns what was
// done. When it fails, the box is destroyed.
func (r *Resolver) build(ctx context.Context, d Driver, spec Spec, recipe Recipe) (ref string, steps []entry.PreparationStep, err error) {
	if ref, err = d.Create(ctx, spec); err != nil {
		return "", nil, err
	}
	if steps, err = r.prepare(ctx, d, ref, recipe); err != nil {
		if err := d.Destroy(context.WithoutCancel(ctx), ref); err != nil {
			r.logger.Warn("cannot destroy a sandbox that could not be made ready", "sandbox", spec.ID, "error", err)
		}
	}
	return ref, steps, err
}

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
// operator allows; git reads it here without its hooks and helpers, and everything else happens inside.
func (r *Resolver) uploadBundle(ctx context.Context, d Driver, ref, path string) error {
	path, err := r.allowedRepo(path)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", path, "bundle", "create", "--quiet", "-", "HEAD", "--all")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	var complaint tail
	cmd.Stderr = &complaint
	bundle, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fault.New(fault.Precondition, "git is not installed on the server", "install git").Because(err)
	}
	uploadErr := d.Upload(ctx, ref, bundlePath, 0o600, bundle)
	if uploadErr != nil {
		io.Copy(io.Discard, bundle) // let git end
	}
	if err := cmd.Wait(); err != nil {
		return fault.Newf(fault.Precondition, "check that it is a git repository with at least one commit",
			"the repository %s cannot be read: %s", path, complaint.String()).Because(err)
	}
	return uploadErr
}

// allowedRepo is the real path of a repository, which must lie below an allowed root.
func (r *Resolver) allowedRepo(path string) (string, error) {
	denied := fault.Newf(fault.Forbidden, "ask the operator to add its directory to ARBE_REPO_ROOTS, or use a repository's URL",
		"repositories at %s may not be used on this server", path)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", denied.Because(err)
	}
	for _, root := range r.repoRoots {
		root, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(rel) {
			return real, nil
		}
	}
	return "", denied
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
	text := strings.ToValidUTF8(string(kept), "\uFFFD")
	if dropped > 0 {
		text = fmt.Sprintf("… %d bytes left out …\n%s", dropped, text)
	}
	return strings.TrimRight(text, "\n")
}
