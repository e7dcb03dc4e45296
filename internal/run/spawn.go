package run

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Task is a task to delegate.
type Task struct {
	// ID makes a retry harmless: the same task with the same ID returns the first child. If it is empty, each call
	// delegates a new task.
	ID string
	// Parent is the thread that delegates; empty for a task without a parent. Entry is the id of the parent's entry
	// that records it; empty for a generated one.
	Parent, Entry string
	// Text is the task itself. Required.
	Text string
	// Agent is the id or the handle of the bot that does the task. Defaults to @pi.
	Agent string
	// Environment is the environment of the child's sandbox. Defaults to the parent's, or the house's.
	Environment string
	// Sandbox is the sandbox to work in, or "parent" for the parent's. Defaults to a new one.
	Sandbox string
	// Root is the person's entry that made a bot delegate. Defaults to the parent's root. If the parent has none
	// either, as for a bot that uses its API key, the root is generated for the day.
	Root string
	// Wait is how long a delegating bot waits for the end before it is called again. Defaults to [Limits].Wait.
	Wait time.Duration
	// continues means that the child begins with the log of Parent and, in a new sandbox, with its files; see
	// [Resume].Agent.
	continues bool
}

// inParent is the value of [Task].Sandbox for the parent's sandbox.
const inParent = "parent"

// defaultAgent is the handle of the default bot.
const defaultAgent = "pi"

// shownTask is the length of a task in the parent's log, and shownName that of the child's name, in characters.
const (
	shownTask = 500
	shownName = 60
)

// Spawn delegates a task as the scope's agent. In one transaction it creates the child thread, records it in the
// parent, posts the task in the child and queues the child's first run. It returns the child.
//
// Errors: a [fault.Invalid] for an empty or too long task, a [fault.NotFound] for a bot, thread, sandbox or environment
// that the house does not have, a [fault.Precondition] for a bot that is no coding agent, and a [fault.Exhausted] for
// too many tasks.
func (r *Runs) Spawn(ctx context.Context, scope db.Scope, t Task) (child thread.Thread, err error) {
	if err := t.check(r.config.Limits); err != nil {
		return child, err
	}
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		child, err = r.spawnTx(ctx, tx, scope, t)
		return err
	})
	return child, err
}

func (t Task) check(l Limits) error {
	switch {
	case strings.TrimSpace(t.Text) == "":
		return fault.New(fault.Invalid, "task: it is empty", "say what to do")
	case len(t.Text) > entry.MaxTask:
		return fault.Newf(fault.Exhausted, "put long parts into a file, and name the file", "task: it may have at most %d bytes, and this has %d", entry.MaxTask, len(t.Text)).WithReason(fault.TooLarge)
	case t.Wait < 0 || t.Wait > l.WaitMost:
		return fault.Newf(fault.Invalid, "wait for less, or leave it out", "wait: a bot may wait for up to %s", entry.Approximately(l.WaitMost))
	}
	if !utf8.ValidString(t.Text) || strings.ContainsRune(t.Text, 0) {
		return fault.New(fault.Invalid, "task: it is not valid UTF-8 text", "send it as UTF-8 text")
	}
	return nil
}

func (r *Runs) spawnTx(ctx context.Context, tx pgx.Tx, scope db.Scope, t Task) (thread.Thread, error) {
	b, err := r.coderTx(ctx, tx, scope, t.Agent)
	if err != nil {
		return thread.Thread{}, err
	}
	if t.ID != "" { // a retry must not meet the limits, because its own task counts
		if there, err := r.config.Threads.GetTx(ctx, tx, db.IDFor(scope.House, t.ID)); err == nil && begun(there) || err != nil && fault.CodeOf(err) != fault.NotFound {
			return there, err
		}
	}
	parent, err := r.parentTx(ctx, tx, scope, t)
	if err != nil {
		return thread.Thread{}, err
	}
	if t.Environment == "" {
		t.Environment = parent.Environment
	}
	root, err := r.rootTx(ctx, tx, scope, t, parent)
	if err != nil {
		return thread.Thread{}, err
	}
	child, err := r.config.Threads.CreateTx(ctx, tx, scope, thread.Draft{
		ID: t.ID, Name: t.name(parent), ParentThread: parent.ID, Agent: b.ID, AskedBy: scope.Agent, Environment: t.Environment, Root: root, RootMost: r.config.RootMost,
		Forks: t.continues,
	})
	if err != nil || begun(child) { // the call is a retry
		return child, err
	}
	s := spawned{Runs: r, scope: scope, task: t, bot: b, parent: parent}
	return child, s.beginTx(ctx, tx, child)
}

// spawned is a task that was accepted, with what is needed to begin it in its child thread.
type spawned struct {
	*Runs
	scope  db.Scope
	task   Task
	bot    bot.Bot
	parent thread.Thread
}

// beginTx writes the task to the child's log, requests its run, and tells the parent.
func (s spawned) beginTx(ctx context.Context, tx pgx.Tx, child thread.Thread) error {
	if s.task.continues {
		if err := s.mayLeaveTx(ctx, tx, s.parent); err != nil {
			return err
		}
	}
	n, err := s.placeTx(ctx, tx, s.parent, child, s.task)
	if err != nil {
		return err
	}
	n.Policy = entry.ReasonDelegated
	if _, err := s.config.Log.AppendTx(ctx, tx, child.Stream(), s.task.begin(s.scope.Agent, child)...); err != nil {
		return err
	}
	if _, err := s.requestTx(ctx, tx, child, n); err != nil {
		return err
	}
	if s.task.Wait > 0 {
		if err := s.config.Threads.AwaitTx(ctx, tx, child.ID, s.task.Wait); err != nil {
			return err
		}
	}
	if s.parent.ID != "" {
		_, err = s.config.Log.AppendTx(ctx, tx, s.parent.Stream(), entry.NewDraft(s.task.Entry, s.scope.Agent, entry.AgentSpawn{
			ChildThreadID: child.ID, AgentID: s.bot.ID, Runtime: s.bot.Runtime, Task: entry.Clip(s.task.Text, shownTask),
		}))
	}
	return err
}

// begun reports whether the log of a child has its task.
func begun(child thread.Thread) bool { return child.Tail > 0 && !child.Inherited(child.Tail) }

// rootTx returns the root of a task. A bot's tasks count towards the limit of a person's entry, even if a program
// delegates them with the bot's key. A person's task has no root.
func (r *Runs) rootTx(ctx context.Context, tx pgx.Tx, scope db.Scope, t Task, parent thread.Thread) (string, error) {
	if t.Root != "" || scope.Agent == "" {
		return t.Root, nil
	}
	if _, err := r.config.Bots.GetTx(ctx, tx, scope.House, scope.Agent); fault.CodeOf(err) == fault.NotFound {
		return "", nil // a person
	} else if err != nil {
		return "", err
	}
	if parent.Root != "" {
		return parent.Root, nil
	}
	return cmp.Or(parent.ID, scope.House) + "/" + scope.Agent + "/" + time.Now().UTC().Format(time.DateOnly), nil
}

// coderTx returns a coding agent of the scope's house, by its id or handle.
func (r *Runs) coderTx(ctx context.Context, tx pgx.Tx, scope db.Scope, name string) (b bot.Bot, err error) {
	if name == "" {
		name = defaultAgent
	}
	if b, err = r.config.Bots.FindTx(ctx, tx, scope.House, name); err != nil {
		return b, err
	}
	if !b.Codes() {
		return b, fault.Newf(fault.Precondition, "mention it in a thread, or delegate to a coding agent, such as @pi", "@%s is not a coding agent", b.Handle).WithReason(fault.NoCodingAgent)
	}
	if _, ok := r.config.Agents[b.Runtime]; !ok {
		return b, fault.Newf(fault.Precondition, "delegate to another bot; arbe bot list shows their runtimes", "this server does not know the coding agent %s of @%s", b.Runtime, b.Handle).WithReason(fault.NoCodingAgent)
	}
	return b, nil
}

// parentTx returns the thread that delegates, if it may delegate another task.
func (r *Runs) parentTx(ctx context.Context, tx pgx.Tx, scope db.Scope, t Task) (parent thread.Thread, err error) {
	if t.Parent == "" {
		return parent, nil
	}
	if err := r.config.Threads.LockDelegationsTx(ctx, tx, t.Parent); err != nil {
		return parent, err
	}
	if parent, err = r.config.Threads.GetTx(ctx, tx, t.Parent); err != nil {
		return parent, err
	}
	l := r.config.Limits
	depth, err := r.config.Threads.DepthTx(ctx, tx, parent.ID)
	if err != nil {
		return parent, err
	}
	if depth >= l.Depth {
		return parent, fault.Newf(fault.Exhausted, "do it here, or delegate it from the thread above", "this thread is at depth %d, and tasks cannot be delegated any deeper", depth).WithReason(fault.LimitReached)
	}
	busy, err := r.config.Threads.BusyChildrenTx(ctx, tx, parent.ID)
	if err == nil && busy >= int64(l.Children) {
		err = fault.Newf(fault.Exhausted, "wait until some have ended, or cancel some", "%d tasks that were delegated from this thread have not ended, the most allowed", busy).WithReason(fault.LimitReached)
	}
	return parent, err
}

// placeTx assigns a child the sandbox that its task names, and returns the note for its first run. A child that
// continues its parent's work is on the parent's sandbox until that run leaves it for a new one with the same files.
func (r *Runs) placeTx(ctx context.Context, tx pgx.Tx, parent, child thread.Thread, t Task) (n note, err error) {
	box := t.Sandbox
	switch {
	case box == "" && t.continues && parent.Sandbox != "":
		box, n = parent.Sandbox, note{Fresh: true, Leaves: parent.Sandbox}
	case box == "":
		return n, nil
	case box == inParent && parent.Sandbox == "":
		return n, fault.New(fault.Precondition, "sandbox: the thread has none yet", "run a command in it first, or leave the sandbox out for a new one")
	case box == inParent:
		box = parent.Sandbox
	}
	return n, r.config.Threads.PutOnSandboxTx(ctx, tx, child.ID, box)
}

// nameOf returns a title for a task, from the beginning of its first line.
func nameOf(task string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(task), "\n")
	return entry.Clip(strings.Join(strings.Fields(entry.Visible(first, func(rune) string { return " " })), " "), shownName)
}
