// Package run runs coding agents: a bot whose runtime is one drives a thread, and each of its passes, idle → running →
// completed, failed or cancelled, is a run. A run is identified by its thread and its epoch, which the row counts.
//
// The life of a run, and where it is:
//
//	asked for   somebody delegates a task (spawn.go), continues a thread or speaks in one that rests (request.go). The row,
//	            the entries and the job are one transaction.
//	launched    a job puts our runner and the agent into the thread's sandbox (box.go), claims the run, and launches the
//	            runner, which outlives every server (launch.go). It then follows the runner only to learn at once that it died.
//	observed    the runner reads the thread and posts what happens, with the token of its run, through the stream door
//	            (intake.go).
//	told        what people say meanwhile waits until the runner takes it for the agent; until then they can change it (queue.go).
//	waited for  a bot that delegated is asked again once the last of its tasks has ended, or has taken too long (await.go).
//	ended       whoever learns it first ends the run: the runner with its report, the job, a person (cancel.go), or the
//	            search for runs of which nothing is heard (reconcile.go). All of them do it in one way, once: status, signal
//	            and the word to the thread above are one transaction (end.go).
//
// What a run has changed is a patch (patch.go), which people apply or push (changes.go).
//
// What happened is in the log; list.go reads it back. No run is silently lost: as long as its row says that it runs, somebody
// is looking for it.
package run

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// queue is the queue of launches, and workers how many runs a server follows. It can be large, because following waits.
const (
	queue   = "runs"
	workers = 512
)

// Queue returns the queue of runs.
func Queue(l jobs.Limits) jobs.Queue {
	return jobs.Queue{Name: queue, Workers: workers, Limits: l, Poll: time.Second}
}

// Agent is a coding agent that runs can use.
type Agent struct {
	// Title is how people call it, and Version the pinned one that is installed.
	Title, Version string
	// Install is a script for /bin/sh that installs it into $DIR, and does nothing if it is there.
	Install string
	// Dialects are those in which it can speak to a model, the best first.
	Dialects []string
	// Asks: it can ask people.
	Asks bool
	// Witness: it cannot tell failure from success, so that [Config].Witness does.
	Witness bool
}

// Model is the model that an agent speaks to.
type Model struct {
	Provider, ID, Dialect, KeyEnv string
	// Path is where the server's doors have it: "/api/model/anthropic".
	Path                     string
	ContextWindow, MaxTokens int64
}

// Config configures [New]. The fields up to Agents are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Bots    *bot.Bots
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// Jobs has [Queue] among its queues.
	Jobs *jobs.Jobs
	// Token returns the token of a run, in the name of the bot that drives the thread.
	Token func(ctx context.Context, house, thread, bot string, epoch int64) (string, error)
	// Program returns our runner for the architecture of a box, as uname -m names it.
	Program func(arch string) ([]byte, error)
	// Agents are the coding agents by runtime.
	Agents map[string]Agent
	// Command runs a command in a thread, as command.Commands.Run does.
	Command func(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (entry.Entry, error)

	// Model returns the model of a bot, in a dialect that its agent speaks. Defaults to nil: agents have none.
	Model func(ctx context.Context, scope db.Scope, b bot.Bot, dialects []string) (Model, error)
	// Rules returns what a bot does only with a person's approval, by its house and itself, and how long it waits for that. Defaults to
	// nil: nothing, and a day.
	Rules func(ctx context.Context, scope db.Scope, b bot.Bot) (Rules, error)
	// Wake queues the turn of a bot that waited for what it delegated. Defaults to nil: nobody is woken.
	Wake func(ctx context.Context, tx pgx.Tx, w Wake) error
	// Spent returns what runs of a thread used through the gateway, by their epochs, and TreeSpent what a thread and all below it
	// cost. Both default to nil: only what runners say is known.
	Spent     func(ctx context.Context, tx pgx.Tx, house, thread string, epochs ...int64) (map[int64]entry.TurnUsage, error)
	TreeSpent func(ctx context.Context, tx pgx.Tx, house, thread string) (Cost, error)
	// Witness says why a run whose agent reports success has failed, from how the last call of its model ended; empty if nothing says
	// so. Defaults to nil: agents are believed.
	Witness func(ctx context.Context, house, thread string, epoch int64) (failed string, err error)
	// Secrets are those that environments bind, and Artifacts keeps the changes of working trees. Both default to nil.
	Secrets   *secret.Secrets
	Artifacts *artifact.Artifacts
	// RootMost is how many threads bots may create because of one entry of a person. Defaults to no limit.
	RootMost int
	// Limits say when a run is taken for lost, and what it may write.
	Limits Limits
}

// Rules are what a bot does only with a person's approval, by the names of arbe's tools, and how long it waits for an answer.
type Rules struct {
	Ask      []string
	Patience time.Duration
}

// Wake is a bot that waited for what it delegated, and waits for nothing of it any more.
type Wake struct {
	House, Thread, Bot string
	// Entry says why: it is the result of what ended last, or says that it takes too long. Root is the entry of a person from which
	// it follows.
	Entry, Root string
}

// Runs runs coding agents. It is safe for concurrent use.
type Runs struct {
	config Config
	posts  posts
	sights sights
}

// New returns the runs of an installation, and has the jobs of the configuration launch them.
func New(c Config) *Runs {
	c.Limits = c.Limits.withDefaults()
	c.RootMost = cmp.Or(c.RootMost, math.MaxInt32)
	r := &Runs{config: c, posts: posts{byThread: map[string]*posting{}}, sights: sights{byThread: map[string]sight{}}}
	jobs.Add(c.Jobs, jobs.Kind[launchArgs]{Queue: queue, Attempts: 1, Unique: true, Adopted: true, Work: r.work})
	return r
}

// log returns the log of a thread.
func log(house, threadID string) stream.Ref {
	return stream.Ref{House: house, Name: thread.StreamName(threadID)}
}

// inThread calls do with a thread whose row is locked, in a transaction of its house. A thread that was deleted is a
// [fault.NotFound].
func (r *Runs) inThread(ctx context.Context, house, threadID string, do func(pgx.Tx, thread.Thread) error) error {
	return r.config.DB.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		th, err := r.config.Threads.LockTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		return do(tx, th)
	})
}
