package sandbox

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

const (
	// defaultStepTime limits each step of a preparation, unless the operator's limit for commands is lower.
	defaultStepTime = 30 * time.Minute
	// bundlePath is where a repository of this machine is put in a box for the clone. It is outside the working tree,
	// because git clones only into an empty directory.
	bundlePath = Home + "/.arbe-repo.bundle"
)

// preparation prepares a new box for its first command: it clones a repository into it and runs a setup script. It is
// safe for concurrent use.
type preparation struct {
	repositories repositories
	stepTime     time.Duration // limits each step
}

// redacting removes secrets from what is written to it, and gives the rest to another writer, which never fails.
type redacting struct {
	mu     sync.Mutex
	stream *secret.Stream
}

func newRedacting(r *secret.Redactor, to io.Writer) *redacting {
	return &redacting{stream: r.Stream(func(p []byte) { _, _ = to.Write(p) })}
}

// Write is called for both outputs of a command, perhaps at the same time.
func (r *redacting) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream.Write(p)
	return len(p), nil
}

func (r *redacting) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream.Flush()
}

// run does what the recipe asks for, shows its output in watch without what secrets removes, and returns the steps that were done, also if it fails.
// A failed step is the last one, and the error is a [fault.Precondition].
func (p preparation) run(ctx context.Context, d Driver, ref string, recipe Recipe, watch *progress, secrets *secret.Redactor) (steps []entry.PreparationStep, err error) {
	step := func(name string, argv ...string) error {
		var out tail
		watch.step(name)
		both := newRedacting(secrets, io.MultiWriter(&out, watch))
		// Git must not ask for a password, because nobody could answer.
		result, err := d.Exec(ctx, ref, Command{Argv: argv, Stdout: both, Stderr: both, Timeout: p.stepTime,
			Env: map[string]string{"GIT_TERMINAL_PROMPT": "0"}})
		both.flush()
		if err != nil {
			return err
		}
		steps = append(steps, entry.PreparationStep{Name: name, ExitCode: result.ExitCode, DurationMS: result.Duration.Milliseconds(), Output: out.String()})
		if result.ExitCode != 0 {
			return fault.Newf(fault.Precondition, "correct the environment, then run the command again",
				"the sandbox could not be prepared: %s failed with exit code %d\n%s", name, result.ExitCode, out.String())
		}
		return nil
	}
	if recipe.Repo != "" {
		source := recipe.Repo
		if path, local := localRepo(recipe.Repo); local {
			upload := func(bundle io.Reader) error { return d.Upload(ctx, ref, bundlePath, 0o600, bundle) }
			if err := p.repositories.bundle(ctx, path, upload); err != nil {
				return steps, err
			}
			source = bundlePath
		}
		// The bundle is deleted after the clone, so origin is the recipe's address instead of it.
		const clone = `set -e; git clone --quiet -- "$1" .; git remote set-url origin "$2"; if [ -n "$3" ]; then git checkout --quiet "$3" --; fi; rm -f "` + bundlePath + `"`
		if err := step("clone", "/bin/sh", "-c", clone, "clone", source, recipe.Repo, recipe.Ref); err != nil {
			return steps, err
		}
	}
	if recipe.Setup != "" {
		return steps, step("setup", "/bin/sh", "-e", "-c", recipe.Setup)
	}
	return steps, nil
}
