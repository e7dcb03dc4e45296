package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Main runs the program with its arguments and environment, and returns its exit code.
func Main(ctx context.Context, args, environ []string, find Find) int {
	if len(args) > 1 && (args[0] == "apply" || args[0] == "branch") {
		return changesMain(ctx, args[0], args[1:], environ, os.Stdout)
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: arbe-runner SPEC.json")
		return exitUnusable
	}
	s, err := load(args[0], environ, find)
	if err != nil {
		fmt.Fprintln(os.Stderr, "arbe-runner:", err)
		return exitUnusable
	}
	if err := adopt(); err != nil {
		fmt.Fprintln(os.Stderr, "arbe-runner: processes that leave their group cannot be found again:", err)
	}
	mark := Mark(filepath.Base(s.stream), s.Epoch)
	s.environ = append(s.environ, mark)
	spool, resumed, err := openSpool(s.dir, s.Epoch, s.next)
	if err != nil {
		fmt.Fprintln(os.Stderr, "arbe-runner:", err)
		return exitUnusable
	}
	r := newRun(s, spool)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer killTree(0, mark)
	go r.post.run(ctx)
	r.begin(ctx, resumed, mark)
	return r.drain(ctx)
}

func newRun(s *setup, spool *spool) *run {
	d := newDoor(s.stream, s.token)
	w := newWholes(filepath.Join(s.dir, "whole-"+strconv.FormatInt(s.Epoch, 10)))
	return &run{setup: s, door: d, spool: spool, post: newPoster(d, spool, w, s.author), tree: newTree(s), inbox: make(chan []entry.Entry),
		queue: entry.NewQueue(s.author, s.After), calls: map[string]call{}, asked: map[string]asking{}, phase: "starting"}
}

// begin does the run's work, or reports that an earlier runner did not finish it.
func (r *run) begin(ctx context.Context, resumed bool, mark string) {
	switch {
	case r.spool.ended: // an earlier runner finished, but could not post its report
	case resumed:
		killTree(0, mark)
		r.finish(ctx, unfinished(entry.PhaseObservation, "the runner was killed, and the agent with it; continue the run to go on"))
	default:
		r.work(ctx, mark)
	}
}

// Mark returns a variable for the environment of all processes of a run of the thread with this stream. By it, the runner
// finds an agent's commands even in separate sessions.
func Mark(stream string, epoch int64) string {
	return "ARBE_RUN=" + stream + "." + strconv.FormatInt(epoch, 10)
}

// drain waits until everything is posted.
func (r *run) drain(ctx context.Context) int {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-r.post.drained:
			return exitReported
		case <-r.post.over:
			fmt.Fprintln(os.Stderr, "arbe-runner:", r.post.why)
			return exitOver
		case <-r.inbox:
		case <-beat.C:
			r.beat()
		case <-ctx.Done():
			return 1
		}
	}
}

// work runs the agent until it has finished, and reports.
func (r *run) work(ctx context.Context, mark string) {
	r.beat()
	entries, offset, ok := r.readOrEnd(ctx)
	if !ok {
		return
	}
	follows, stop := context.WithCancel(ctx)
	defer stop()
	go follow(follows, r.door, offset, r.inbox, r.post.fail)
	if err := r.prepare(ctx, entries); err != nil {
		r.finish(ctx, unfinished(entry.PhaseDispatch, err.Error()))
		return
	}
	guard := time.NewTimer(r.max())
	defer guard.Stop()
	for report, again := (runFinished{}), false; ; {
		if r.takeAll(ctx, guard.C) != nil || r.isOver(ctx, report, again) {
			return
		}
		exit, err := r.once(ctx, guard.C, mark)
		if errors.Is(err, errOver) {
			return
		} else if err != nil {
			r.finish(ctx, unfinished(entry.PhaseDispatch, err.Error()))
			return
		}
		if report, again = r.judge(exit); !again {
			r.finish(ctx, report)
			return
		}
	}
}

// readOrEnd reads the thread. It reports false if the run ends because it cannot.
func (r *run) readOrEnd(ctx context.Context) (entries []entry.Entry, offset string, ok bool) {
	entries, offset, err := r.readThread(ctx)
	switch {
	case errors.Is(err, errOver):
		r.post.fail(err)
	case err != nil && ctx.Err() == nil:
		r.finish(ctx, unfinished(entry.PhaseDispatch, "the thread cannot be read: "+err.Error()))
	}
	return entries, offset, err == nil && ctx.Err() == nil
}

// isOver ends the run if the agent has nothing to do, or no time. report is that of its last work, unless again is false.
func (r *run) isOver(ctx context.Context, report runFinished, again bool) bool {
	switch {
	case r.cancelled, len(r.waiting) == 0 && r.withdrawn && !again:
		r.finish(ctx, runFinished{RunFinished: entry.RunFinished{Outcome: entry.RunCancelled}})
	case r.overtime:
		r.finish(ctx, unfinished(entry.PhaseExecution, r.tookTooLong()))
	case len(r.waiting) == 0 && again: // the waiting messages were cancelled
		r.finish(ctx, report)
	default:
		return false
	}
	return true
}

// readThread reads the thread while heartbeats continue.
func (r *run) readThread(ctx context.Context) (entries []entry.Entry, offset string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		entries, offset, err = readAll(ctx, r.door)
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-done:
			return entries, offset, err
		case <-beat.C:
			r.beat()
		}
	}
}

// prepare finds the agent's task, and makes its session.
func (r *run) prepare(ctx context.Context, entries []entry.Entry) error {
	spoken := r.learn(entries)
	if err := os.MkdirAll(r.Session, 0o700); err != nil {
		return fmt.Errorf("the session's directory cannot be made: %w", err)
	}
	r.job = r.newJob()
	if err := r.reachModel(); err != nil {
		return err
	}
	if !r.isBaseKnown() {
		if base, err := r.tree.commit(ctx); err == nil && base != "" {
			_ = os.WriteFile(r.baseFile(), []byte(base), 0o600) // otherwise the patch has no commits
		}
	}
	kept, err := os.ReadFile(r.sessionFile())
	if err == nil && !r.Fresh && spoken.ended {
		r.session = string(kept)
		return nil
	}
	// If the last run was cut short, the session's files may be damaged, and they do not say which tool calls had ended.
	messages := harness.Transcript(entries, r.author, r.After)
	if len(messages) == 0 {
		return nil
	}
	files, session, err := r.harness.Rebuild(r.job, messages)
	if err != nil {
		return fmt.Errorf("the session cannot be rebuilt: %w", err)
	}
	r.session = session
	return errors.Join(r.writeFiles(files), r.keepSession())
}

func (r *run) newJob() harness.Job {
	return harness.Job{Program: r.Program, Dir: r.WorkDir, Session: r.Session, Instructions: r.Instructions, Ask: r.Ask,
		Model: harness.Model{Provider: r.Model.Provider, ID: r.Model.ID, Dialect: harness.Dialect(r.Model.Dialect), BaseURL: strings.TrimSuffix(r.Model.BaseURL, "/"),
			ContextWindow: r.Model.ContextWindow, MaxTokens: r.Model.MaxTokens, Thinks: r.Model.Thinks}}
}

// reachModel finds the model's key, or starts the relay that knows it.
func (r *run) reachModel() error {
	if name := r.Model.KeyEnv; name != "" && name != envToken {
		if r.job.Model.Key = os.Getenv(name); r.job.Model.Key == "" {
			return fmt.Errorf("the variable %s, which has the model's key, is empty; bind the secret in the environment", name)
		}
		return nil
	}
	relay, err := startRelay(r.Model.BaseURL, r.door)
	if err != nil {
		return err
	}
	r.job.Model.BaseURL, r.job.Model.Key = relay.url, relay.key
	return nil
}

// keepSession saves the name by which the agent can continue the session.
func (r *run) keepSession() error {
	return os.WriteFile(r.sessionFile(), []byte(r.session), 0o600)
}

func (r *run) writeFiles(files []harness.File) error {
	for _, f := range files {
		path := filepath.Join(r.Session, filepath.Clean("/"+f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		_ = os.Remove(path) // the agent may have put a link there
		mode := os.FileMode(0o600)
		if f.Program {
			mode = 0o700
		}
		if err := os.WriteFile(path, f.Content, mode); err != nil {
			return err
		}
	}
	return nil
}

// once starts the agent once. It serves the agent until it and all processes that it started have ended. The error is
// errOver, or says why the agent could not be started.
func (r *run) once(ctx context.Context, guard <-chan time.Time, mark string) (harness.Exit, error) {
	if r.session == "" && len(r.waiting) == 0 {
		return harness.Exit{}, errors.New("there is nothing to do: nobody has said anything in the thread")
	}
	session, prompt := r.session, r.prompt()
	s, err := r.harness.Start(r.job, session, prompt)
	if err != nil {
		return harness.Exit{}, err
	}
	if err := r.writeFiles(s.Files); err != nil {
		return harness.Exit{}, fmt.Errorf("the agent's files cannot be written: %w", err)
	}
	if _, err := os.Stat(r.WorkDir); err != nil {
		return harness.Exit{}, fmt.Errorf("the working directory %s is gone", r.WorkDir)
	}
	if r.agent, err = start(r.WorkDir, environment(r.environ, s.Env), s); err != nil {
		return harness.Exit{}, fmt.Errorf("%s cannot be started: %w", r.harness.Info().Title, err)
	}
	r.use(s.Session)
	r.reader, r.settled, r.stop = r.harness.Read(r.job, session, prompt), false, nil
	r.turn("thinking")
	exit, err := r.attend(ctx, guard)
	killTree(r.agent.pid, mark)
	if err != nil {
		r.agent.abandon()
		return exit, err
	}
	r.readRest()
	r.unaskAll()
	return exit, nil
}

// environment returns an environment with changes: "NAME=value" sets, and "NAME" removes.
func environment(environ, changes []string) []string {
	out := append([]string(nil), environ...)
	for _, change := range changes {
		name, _, set := strings.Cut(change, "=")
		kept := out[:0]
		for _, pair := range out {
			if !strings.HasPrefix(pair, name+"=") {
				kept = append(kept, pair)
			}
		}
		if out = kept; set {
			out = append(out, change)
		}
	}
	return out
}

// attend serves the running agent until it ends. The error is errOver, or that of ctx.
func (r *run) attend(ctx context.Context, guard <-chan time.Time) (exit harness.Exit, err error) {
	beat := time.Tick(beatEvery)
	lines := r.agent.lines
	for {
		select {
		case l, ok := <-lines:
			if lines = r.agent.lines; !ok {
				lines = nil // the agent closed its output and still runs
				continue
			}
			r.read(l)
		case entries := <-r.inbox:
			r.hear(ctx, entries)
		case err := <-r.answer():
			r.took(err)
			r.hear(ctx, nil)
		case exit := <-r.agent.exited:
			return r.exited(exit), nil
		case <-r.stop:
			killTree(r.agent.pid, "")
		case <-guard:
			r.overtime = true
			r.interrupt()
		case <-beat:
			r.check(ctx)
		case <-r.post.over:
			return exit, errOver
		case <-ctx.Done():
			return exit, ctx.Err()
		}
	}
}

// exited returns how the agent ended. One that had finished its work, but did not exit, ended well.
func (r *run) exited(exit harness.Exit) harness.Exit {
	if r.settled && r.stop != nil && exit.Signal != 0 {
		exit.Code, exit.Signal = 0, 0
	}
	return exit
}

// check does what is due from time to time.
func (r *run) check(ctx context.Context) {
	r.askEarly(true)
	r.tooLate(time.Now())
	r.refusedAt = 0
	r.hear(ctx, nil)
	r.beat()
}

// readRest reads the output that the agent wrote before it ended.
func (r *run) readRest() {
	late := time.After(outputWithin)
	for {
		select {
		case l, ok := <-r.agent.lines:
			if !ok {
				return
			}
			r.read(l)
		case entries := <-r.inbox:
			r.learn(entries)
		case <-late:
			r.agent.abandon()
			return
		}
	}
}

// hear reads new entries, and gives the messages to an agent that accepts them while it works.
func (r *run) hear(ctx context.Context, entries []entry.Entry) {
	was := r.cancelled
	r.learn(entries)
	if r.cancelled && !was {
		r.interrupt()
		return
	}
	if r.steers() {
		r.steer()
		r.take(ctx, r.steerable())
	}
}

// interrupt asks the agent to stop, and has it killed after stopWithin.
func (r *run) interrupt() {
	if r.stop != nil && !r.settled {
		return
	}
	r.turn("stopping")
	switch input, signal := r.reader.Interrupt(); {
	case input != nil:
		r.agent.input.write(input)
	case signal != 0:
		signalAgent(r.agent.pid, signal)
	}
	r.stop = time.After(stopWithin)
}

// read reads a line of the agent's output.
func (r *run) read(l line) {
	for _, e := range r.reader.Line(l.text, l.cut) {
		r.event(e)
	}
}

func (r *run) event(e harness.Event) {
	r.use(e.Session)
	if e.Message != nil {
		r.add(e.Message)
	}
	r.show(e)
	if e.Input != nil {
		r.agent.input.write(e.Input)
	}
	if e.Ask != nil {
		r.early = append(r.early, *e.Ask)
		r.askEarly(false)
	}
	if e.Unask != "" {
		r.unask(e.Unask)
	}
	if e.Settled && !r.settled {
		r.settled = true
		r.agent.input.end()
		if r.stop == nil {
			r.stop = time.After(settleWithin)
		}
	}
}

// use keeps the name of the agent's session.
func (r *run) use(session string) {
	if session != "" && session != r.session {
		r.session = session
		_ = r.keepSession() // otherwise it is rebuilt
	}
}

// show shows those who watch the thread what the agent does.
func (r *run) show(e harness.Event) {
	if e.Chunk != nil {
		r.post.chunk(r.delta(), *e.Chunk)
	}
	if e.Tool != "" {
		r.lastTool = entry.Clip(e.Tool, 100)
		r.turn("tool")
	}
	if e.ToolDone {
		r.turn("thinking")
	}
	if e.Waiting != "" {
		r.answers++
		r.post.chunk(r.delta(), entry.PiChunk{Kind: "retry", Text: e.Waiting})
		r.turn("waiting")
	}
}

// delta returns the id for deltas of the current answer.
func (r *run) delta() string {
	return entry.RunEntryID(r.Epoch, r.spool.index()) + "~" + entry.StepCall(1, r.answers)
}
