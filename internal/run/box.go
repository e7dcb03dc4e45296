package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/runner"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file installs the files of a run in a sandbox. Files are named by content or version, so a sandbox that has had
// a run needs only the new specification.

// home is the directory of our files in a sandbox.
const home = sandbox.Home + "/.arbe"

const (
	// lookTimeout limits a look at the sandbox, and installTimeout the installation of an agent.
	lookTimeout, installTimeout = 30 * time.Second, 20 * time.Minute
	// shownInstall is the size of the end of a failed installation's output that its error shows, in bytes.
	shownInstall = 2 << 10
)

// placed are the paths in the sandbox.
type placed struct {
	runner, program string
}

// spec is the path in the sandbox of the run's specification. The runner keeps its files next to it. Threads may share the
// sandbox, so each run has its own directory.
func (l *launch) spec() string {
	return home + "/run-" + l.thread.ID + "-" + strconv.FormatInt(l.job.Args.Epoch, 10) + "/spec.json"
}

// prepare puts our runner and the agent's program into a sandbox. It shows the steps as live output of the run.
func (l *launch) prepare(ctx context.Context, h sandbox.Handle, agent Agent) (p placed, err error) {
	watch := l.watch(ctx)
	if p.runner, err = l.putRunner(ctx, h, watch.step); err != nil {
		return p, err
	}
	p.program = home + "/agents/" + l.bot.Runtime + "-" + agent.Version
	return p, l.install(ctx, h, agent, p.program, watch)
}

// putRunner puts our runner into a sandbox, unless it is already there, and returns its path.
func (r *Runs) putRunner(ctx context.Context, h sandbox.Handle, step func(name string)) (string, error) {
	arch, err := output(ctx, h, "uname", "-m")
	if err != nil {
		return "", err
	}
	program, err := r.config.Program(strings.TrimSpace(arch))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(program)
	path := home + "/runner-" + hex.EncodeToString(sum[:8])
	there, err := output(ctx, h, "/bin/sh", "-c", `test -x "$1" && echo yes || echo no`, "sh", path)
	if err != nil || strings.TrimSpace(there) == "yes" {
		return path, err
	}
	step("copy the runner")
	return path, h.Upload(ctx, path, 0o755, bytes.NewReader(program))
}

// install installs the agent's program. The script does nothing if it is already there.
func (l *launch) install(ctx context.Context, h sandbox.Handle, agent Agent, dir string, watch *watch) error {
	watch.step("install " + agent.Title + " " + agent.Version)
	var tail tailWriter
	result, err := h.Exec(ctx, sandbox.Command{
		Argv: []string{"/bin/sh", "-c", agent.Install}, Env: map[string]string{"DIR": dir}, Stdout: io.MultiWriter(&tail, watch), Merged: true, Timeout: h.Most(installTimeout),
	})
	switch {
	case err != nil:
		return err
	case result.TimedOut:
		return fault.Newf(fault.Precondition, "continue the thread to try again, or use an image that has it", "the installation of %s took too long", agent.Title)
	case result.ExitCode != 0:
		return fault.Newf(fault.Precondition, "allow the hosts that it needs (arbe env allow), or use an image that has it; then continue the thread",
			"%s %s could not be installed (exit %d):\n%s", agent.Title, agent.Version, result.ExitCode, tail.String())
	}
	return nil
}

// output returns the standard output of a short command in a sandbox.
func output(ctx context.Context, h sandbox.Handle, argv ...string) (string, error) {
	var out tailWriter
	result, err := h.Exec(ctx, sandbox.Command{Argv: argv, Stdout: &out, Timeout: lookTimeout})
	if err == nil && result.ExitCode != 0 {
		err = fault.Newf(fault.Precondition, "use another image", "the sandbox has no working %s", path.Base(argv[0]))
	}
	return out.String(), err
}

// most returns how long the run may take.
func (l *launch) most() time.Duration {
	return time.Duration(l.bot.Limits.OrDefaults().Within(l.config.Bots.Maxima).RunMinutes) * time.Minute
}

// putSpec writes the specification of the run into the sandbox.
func (l *launch) putSpec(ctx context.Context, h sandbox.Handle, p placed) error {
	s := runner.Spec{
		Epoch: l.job.Args.Epoch, Harness: l.bot.Runtime, Program: p.program, WorkDir: sandbox.Workspace, Session: home + "/session-" + l.thread.ID,
		Fresh: l.note.Fresh, After: l.thread.Run.Through, Instructions: l.bot.Instructions,
		Ask: l.rules.Ask, AnswerSeconds: int64(l.rules.Patience.Seconds()), MaxSeconds: int64(l.most().Seconds()),
	}
	if m := l.model; m.ID != "" {
		s.Model = runner.Model{
			Provider: m.Provider, ID: m.ID, Dialect: m.Dialect, BaseURL: h.Door() + m.Path, ContextWindow: m.ContextWindow, MaxTokens: m.MaxTokens, Thinks: m.Thinks,
		}
		// The gateway must see the calls of an agent that cannot tell failure from success.
		if !l.config.Agents[l.bot.Runtime].Witness && slices.ContainsFunc(h.Secrets(), func(b secret.Binding) bool { return b.Name == m.KeyEnv && b.File == "" }) {
			s.Model.BaseURL, s.Model.KeyEnv = m.Root, m.KeyEnv
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return h.Upload(ctx, l.spec(), 0o600, bytes.NewReader(text))
}

// environment returns the secrets that the sandbox's environment binds, as variables and as files. The caller owns the
// map of the variables.
func (l *launch) environment(ctx context.Context, h sandbox.Handle) (env, files map[string]string, err error) {
	env = map[string]string{}
	maps.Copy(env, h.Env())
	if l.config.Secrets == nil || len(h.Secrets()) == 0 {
		return env, nil, nil
	}
	var received secret.Received
	received, err = l.config.Secrets.Receive(ctx, l.scope.House, h.Secrets())
	maps.Copy(env, received.Env)
	return env, received.Files, err
}

// watch shows the steps of a launch, and their output, to clients that watch the thread. It never fails.
type watch struct {
	ctx    context.Context
	log    *stream.Log
	ref    stream.Ref
	id     string
	offset int64
}

func (l *launch) watch(ctx context.Context) *watch {
	return &watch{ctx: ctx, log: l.config.Log, ref: log(l.scope.House, l.thread.ID), id: entry.BootID(l.job.Args.Epoch)}
}

func (w *watch) step(name string) { _, _ = fmt.Fprintf(w, "==> %s\n", name) }

// Write publishes a piece of output.
func (w *watch) Write(p []byte) (int, error) {
	// An error does not matter, because watchers see the outcome in the log.
	_ = w.log.Publish(w.ctx, w.ref, stream.Delta{EntryID: w.id, Offset: w.offset, Data: bytes.Clone(p)})
	w.offset += int64(len(p))
	return len(p), nil
}

// tailWriter keeps the end of its input.
type tailWriter struct{ kept []byte }

func (t *tailWriter) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-shownInstall):]
	return len(p), nil
}

func (t *tailWriter) String() string { return plain(t.kept) }

// plain returns a program's output as valid text for the log.
func plain(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\u2400")
}

// launch is this server's work on the job of one run.
type launch struct {
	*Runs
	job   *jobs.Job[launchArgs]
	note  note
	scope db.Scope
	// thread is the row as last read, and bot its driver.
	thread thread.Thread
	bot    bot.Bot
	// model is the model that the agent uses, and rules are the tools that need a person's approval.
	model Model
	rules Rules
	// tail is the end of the runner's output.
	tail []byte
}
