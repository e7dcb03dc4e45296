package sandbox

import (
	"context"
	"fmt"
	"io"
	"maps"
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
	refusals     *refusals
}

// shared is a writer for the output of a step, and for the hosts that it was kept from. It is safe for concurrent use.
type shared struct {
	mu    sync.Mutex
	w     io.Writer
	hosts map[string]bool
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// maxRefused is of how many hosts an output says that a step was kept from them.
const maxRefused = 20

// refused says in the output that the step was kept from a host, once for each.
func (s *shared) refused(r Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := entry.HostPort(r.Host, r.Port)
	if s.hosts[host] || len(s.hosts) == maxRefused {
		return
	}
	if s.hosts == nil {
		s.hosts = map[string]bool{}
	}
	s.hosts[host] = true
	_, _ = fmt.Fprintf(s.w, "arbe: this was kept from %s, which the environment does not allow\n", host) // fails as the output does
}

// run does what the recipe asks for, shows its output in watch, and returns the steps that were done, also if it fails. The
// setup script receives secrets, which are removed from its output. A failed step is the last one, and the error is a
// [fault.Precondition].
func (p preparation) run(ctx context.Context, d Driver, ref string, recipe Recipe, watch *progress, received secret.Received) (steps []entry.PreparationStep, err error) {
	step := func(name string, received secret.Received, argv ...string) error {
		var out tail
		watch.step(name)
		whole := received.Redactor.Stream(func(p []byte) { _, _ = out.Write(p) }) // never fails, nor does watch
		live := received.Redactor.Live(func(p []byte) { _, _ = watch.Write(p) })
		both := &shared{w: io.MultiWriter(whole, live)}
		defer p.refusals.during(ref, both.refused)()
		env := map[string]string{"GIT_TERMINAL_PROMPT": "0"} // nobody could answer
		maps.Copy(env, received.Env)
		result, err := d.Exec(ctx, ref, Command{Argv: argv, Stdout: both, Stderr: both, Timeout: p.stepTime, Env: env})
		both.mu.Lock() // a refusal may come now
		whole.Flush()
		live.Flush()
		both.mu.Unlock()
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
		if err := step("clone", secret.Received{}, "/bin/sh", "-c", clone, "clone", source, recipe.Repo, recipe.Ref); err != nil {
			return steps, err
		}
	}
	if recipe.Setup != "" {
		return steps, step("setup", received, "/bin/sh", "-e", "-c", recipe.Setup)
	}
	return steps, nil
}
