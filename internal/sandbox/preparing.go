package sandbox

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"log/slog"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// preparation prepares a new box for its first command: it clones a repository into it and runs a setup script. It is
// safe for concurrent use.
type preparation struct {
	repositories repositories
	stepTime     time.Duration // limits each step
	refusals     *refusals
	git          *gitAccess
}

// shared is a writer for the output of a step and for notices of refused hosts. It is safe for concurrent use.
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

// maxRefused limits the notices of refused hosts in an output.
const maxRefused = 20

// refused writes a notice of a refused host to the output, once per host.
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

// preparing is the preparation of one box.
type preparing struct {
	preparation
	ctx      context.Context
	of       Sandbox // whose box it is
	driver   Driver
	ref      string
	recipe   Recipe
	watch    *progress
	received secret.Received
	// restoring has the files that the box begins with; nil if it begins with the recipe's only.
	restoring *restoring
	// own is what the first repository says about its sandboxes, in the file ownFile. wanted is the recipe of the box
	// that it asks for, with errOtherBox. chosen means that the box was created from such a recipe.
	own     repositoryFile
	ownFile string
	wanted  Recipe
	chosen  bool
	// cached is the use of a cached environment, whose files another box prepared.
	cached cached

	// steps are the recipe's steps, and boot all steps.
	steps, boot []entry.PreparationStep
	// commits are the commits that were cloned, by their folders.
	commits map[string]string
}

// script is the command of one step.
type script struct {
	name     string
	argv     []string
	dir      string
	env      map[string]string
	received secret.Received
}

// do runs one step.
func (p *preparing) do(s script) error {
	var out tail
	p.watch.step(s.name)
	whole := s.received.Redactor.Stream(func(b []byte) { _, _ = out.Write(b) }) // neither it nor watch ever fails
	live := s.received.Redactor.Live(func(b []byte) { _, _ = p.watch.Write(b) })
	both := &shared{w: io.MultiWriter(whole, live)}
	defer p.refusals.during(p.ref, both.refused)()
	env := map[string]string{"GIT_TERMINAL_PROMPT": "0"} // nobody could answer
	maps.Copy(env, s.env)
	maps.Copy(env, s.received.Env)
	result, err := p.driver.Exec(p.ctx, p.ref, Command{Argv: s.argv, Dir: s.dir, Stdout: both, Stderr: both, Timeout: p.stepTime, Env: env, Secrets: s.received.Files})
	both.mu.Lock() // a refusal may still arrive
	whole.Flush()
	live.Flush()
	both.mu.Unlock()
	if err != nil {
		return err
	}
	if result.TimedOut {
		_, _ = fmt.Fprintf(&out, "\narbe: it was ended, because a step may take %v\n", p.stepTime) // a tail never fails
	}
	step := entry.PreparationStep{Name: s.name, ExitCode: result.ExitCode, DurationMS: result.Duration.Milliseconds(), Output: out.String()}
	p.steps, p.boot = append(p.steps, step), append(p.boot, step)
	return p.failure(s.name, result, out.String())
}

// failure returns the error of a step or a small command that failed; nil if it did not.
func (p *preparing) failure(what string, result Result, output string) error {
	switch {
	case result.TimedOut:
		return overtime("the sandbox could not be prepared: "+what, p.stepTime, output)
	case result.ExitCode != 0 && noRoom(output) != "":
		return fault.Newf(fault.Precondition, "raise the disk limit of the environment, or bring less into it, for example a clone with a depth; then run the command again",
			"the sandbox could not be prepared: %s\n%s", fmt.Sprintf(noRoom(output), what), output)
	case result.ExitCode != 0:
		return fault.Newf(fault.Precondition, "correct the environment, then run the command again",
			"the sandbox could not be prepared: %s failed with exit code %d\n%s", what, result.ExitCode, output)
	}
	return nil
}

// noRoom returns what to say of a step, whose name it leaves open, if its output means that the disk is full; otherwise "".
func noRoom(output string) string {
	switch {
	case strings.Contains(output, "No space left on device"):
		return "its disk is full, because %s needs more than its limit"
	case strings.Contains(output, "unable to write file"): // git says no more, and deletes the incomplete files
		return "its disk is too full for the files of %s"
	}
	return ""
}

// overtime is the error of a step that exceeded its limit.
func overtime(what string, limit time.Duration, output string) error {
	return fault.Newf(fault.Precondition, "find out what it waits for, or move the long part into a command of the thread; then run the command again",
		"%s took longer than %v, the limit of a step\n%s", what, limit, output)
}

// quiet runs a small command that is not a step, and fails like [preparing.do].
func (p *preparing) quiet(what string, argv ...string) error {
	var out tail
	result, err := p.driver.Exec(p.ctx, p.ref, Command{Argv: argv, Stdout: &out, Merged: true, Timeout: p.stepTime})
	if err == nil {
		err = p.failure(what, result, out.String())
	}
	return err
}

// cached is the use of the cached environment in the preparation of one box. The zero value uses none.
type cached struct {
	layers   Layered // nil: the driver does not keep layers, or none may be used
	rebuilds int32
	logger   *slog.Logger

	// key is the key of the layer; empty if the commits are not known. refs are the repositories' answers, by folder.
	key  string
	refs map[string]string
}

// restoring restores the working tree of a sandbox in its replacement, during the preparation. This happens before the
// setup script, which therefore finds the files of its last run.
type restoring struct {
	from Tree
	open func(ctx context.Context, artifactID string) (io.ReadCloser, error)
	// now returns what is saved of the old sandbox now; nil if there is no old sandbox.
	now func(context.Context) (Tree, error)
	// parts says how the restore of each part ended.
	parts []entry.TreePart
}
