// Package run runs coding agents. A thread whose bot is a coding agent has a series of runs. Each run goes from idle
// to running, and then to completed, failed or cancelled. A run is identified by its thread and its epoch, a counter
// in the thread's row.
//
// The life of a run, and the files that implement it:
//
//	requested   Somebody delegates a task (spawn.go), continues a thread, also with another agent (another.go), or posts
//	            in an idle one (request.go). The row, the entries and the job are written in one transaction.
//	launched    A job puts our runner and the agent into the thread's sandbox (box.go), claims the run and launches the
//	            runner, which outlives every server (launch.go). The job follows the runner, to learn at once if it dies.
//	observed    The runner reads the thread. It posts events through the stream endpoint, with the token of its run
//	            (intake.go).
//	queued      Messages from people wait until the runner takes them for the agent. Until then they can be changed
//	            (queue.go).
//	awaited     A bot that delegated is called again when its last task has ended or has taken too long (await.go).
//	ended       The first to learn of the end ends the run: the runner with its report, the job, a person (cancel.go), or
//	            the search for silent runs (reconcile.go). All use the same code, once: one transaction writes the status,
//	            the signal and the message to the parent thread (end.go).
//
// The changes of a run are a patch (patch.go), which people apply or push (changes.go).
//
// The log has the history, and list.go reads it. No run is silently lost: as long as its row says that it is running,
// the search looks at it.
package run

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"sync"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// sweepPage is the number of runs read at once.
const sweepPage = 500

// queue is the queue of launches. workers limits the runs that a server follows. It can be large, because
// following a run is only waiting.
const (
	queue   = "runs"
	workers = 512
)

// Agent is a coding agent that runs can use.
type Agent struct {
	// Title is its display name, and Version the pinned version that is installed.
	Title, Version string
	// Install is a script for /bin/sh that installs it into $DIR, and does nothing if it is already there.
	Install string
	// Dialects are the model dialects that it speaks, the best first.
	Dialects []string
	// Steers reports whether it can take messages while it works.
	Steers bool
	// Asks reports whether it can ask people.
	Asks bool
	// Witness means that it cannot tell failure from success, so [Config].Witness decides.
	Witness bool
}

// Model is the model that an agent speaks to.
type Model struct {
	Provider, ID, Dialect string
	// KeyEnv is the secret that is the provider's key; empty if the provider has no such secret. An agent whose environment
	// binds it asks the provider itself, at Root.
	KeyEnv, Root string
	// Path is the path of the model on this server, such as "/api/model/anthropic".
	Path                     string
	ContextWindow, MaxTokens int64
	// Thinks means that the model thinks before it answers.
	Thinks bool
}

// Config configures [New]. The fields up to Agents are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Bots    *bot.Bots
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// Jobs must include [Queue] among its queues.
	Jobs *jobs.Jobs
	// Token returns the token of a run. It acts as the bot that drives the thread.
	Token func(ctx context.Context, house, thread, bot string, epoch int64) (string, error)
	// Program returns our runner for the architecture of a box, as uname -m names it.
	Program func(arch string) ([]byte, error)
	// Agents are the coding agents by runtime.
	Agents map[string]Agent
	// Command runs a command in a thread, as command.Commands.Run does.
	Command func(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (entry.Entry, error)

	// Model returns the model of a bot, in one of the dialects that its agent speaks. Defaults to nil: agents have no
	// model.
	Model func(ctx context.Context, scope db.Scope, b bot.Bot, dialects []string) (Model, error)
	// Rules returns the tools that a bot uses only with a person's approval, set by its house and by the bot itself,
	// and how long it waits for an answer. Defaults to nil: no tools, and a day.
	Rules func(ctx context.Context, scope db.Scope, b bot.Bot) (Rules, error)
	// Wake queues the turn of a bot that waited for its tasks. Defaults to nil: no bot is woken.
	Wake func(ctx context.Context, tx pgx.Tx, w Wake) error
	// Spent returns the gateway's usage of a thread's runs, by epoch. TreeSpent returns the cost of a thread and all
	// its descendants. Both default to nil: only the runners' own figures are known.
	Spent     func(ctx context.Context, tx pgx.Tx, house, thread string, epochs ...int64) (map[int64]entry.TurnUsage, error)
	TreeSpent func(ctx context.Context, tx pgx.Tx, house, thread string) (Cost, error)
	// Witness judges a run whose agent reports success by the end of its last model call. It returns the reason why the
	// run failed nevertheless, or "" if the call shows no failure. Defaults to nil: agents are believed.
	Witness func(ctx context.Context, house, thread string, epoch int64) (failed string, err error)
	// Secrets are the secrets that environments bind. Artifacts keeps the changes of working trees. Both default to
	// nil.
	Secrets   *secret.Secrets
	Artifacts *artifact.Artifacts
	// RootMost is the number of threads that bots may create because of one entry of a person. Defaults to no limit.
	RootMost int
	// Limits say when a run counts as lost, and how much it may write.
	Limits Limits
}

// Rules are the tools that a bot uses only with a person's approval, by their names in arbe, and how long the bot waits
// for an answer.
type Rules struct {
	Ask      []string
	Patience time.Duration
}

// Wake is a bot all of whose awaited tasks have ended or are overdue.
type Wake struct {
	House, Thread, Bot string
	// Entry is the reason: the result of the task that ended last, or the entry that says it is overdue. Root is the
	// person's entry that started the chain.
	Entry, Root string
}

// Runs runs coding agents. It is safe for concurrent use.
type Runs struct {
	config Config
	posts  posts
	sights sights
}

// log returns the log of a thread.
func log(house, threadID string) stream.Ref {
	return stream.Ref{House: house, Name: thread.StreamName(threadID)}
}

// inThread calls do with a thread whose row is locked, in a transaction of its house. A deleted thread is a
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

// Poster is a runner that posts to its thread. The caller has verified its token.
type Poster struct {
	House, Thread, Agent string
	Epoch                int64
}

// posts are the runs that post through this server.
type posts struct {
	mu       sync.Mutex
	byThread map[string]*posting
}

// posting is this server's state of a run that posts.
type posting struct {
	epoch    int64
	redactor *secret.Redactor

	mu sync.Mutex
	// begunEntries and begunBytes count what the row has counted, freshEntries and freshBytes those written since.
	begunEntries, begunBytes int64
	freshEntries, freshBytes int64
	beaten                   bool
}

// Cost is the cost of model calls.
type Cost struct {
	// Micros is in millionths of a US dollar. Unknown means that some calls are not counted, because their model has
	// no known price.
	Micros  int64
	Unknown bool
}

// appendTx appends to a log. If another thread's log refuses the entries, because it is closed or the author has
// left, they are dropped: a closed thread must not keep its children from ending.
func (r *Runs) appendTx(ctx context.Context, tx pgx.Tx, ref stream.Ref, own bool, drafts []entry.Draft) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint, because a failed statement would abort the transaction
		_, err := r.config.Log.AppendTx(ctx, tx, ref, drafts...)
		return err
	})
	switch fault.CodeOf(err) {
	case fault.Precondition, fault.NotFound, fault.Forbidden:
		if !own {
			return nil
		}
	}
	return err
}
