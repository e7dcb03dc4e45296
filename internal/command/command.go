// Package command runs commands: lines of shell in the sandboxes of threads.
//
// A command is an entry and a job, written in one transaction (request.go). A worker runs it in its thread's sandbox and
// writes its result (run.go). No command ever runs twice: if its server dies, the next one follows the command, which is
// still running or has ended meanwhile (attend.go, follow.go). If a command ended with its server, the log says so.
//
// A command's output goes to three places: the live output of its entry and its result (output.go), an artifact if the
// result does not hold all of it (spool.go, keep.go), and the program that requested it, if there is one (attachment.go,
// feed.go, input.go), whichever server that program asks (serve.go). refusal.go reports the hosts that a command was not
// allowed to reach.
package command

import (
	"context"
	"log/slog"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fair"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/relay"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// workers limits the commands that a server runs at once. It is large, because a command mostly waits for its sandbox.
const workers = 64

// DefaultSpoolSize is the default of [Config.SpoolSize]: 1 GiB.
const DefaultSpoolSize = 1 << 30

// Config configures [New]. The fields up to Output are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// Jobs has [Queue] among its queues.
	Jobs *jobs.Jobs
	// Limits are the queue's limits.
	Limits jobs.Limits
	// Output divides this server's work on output among houses.
	Output *fair.Output

	// Artifacts stores output that does not fit into a command's result. Defaults to nil, which drops that output.
	Artifacts *artifact.Artifacts
	// Secrets provides the secrets that environments bind for their commands. Required if an environment binds one.
	Secrets *secret.Secrets
	// SpoolDir is the directory for long output of running commands. Defaults to the directory for temporary files.
	SpoolDir string
	// SpoolSize limits the total bytes in SpoolDir, so that commands cannot fill its disk. Long output counts twice, because
	// the sandbox keeps it for the next server too. Beyond the limit, only the beginning of an output is kept. Defaults to
	// [DefaultSpoolSize].
	SpoolSize int64
	// Provide copies the files that a command needs into its sandbox, before the command begins there. Defaults to nil:
	// nothing.
	Provide func(ctx context.Context, scope db.Scope, in sandbox.Handle, c entry.Command) error
	// End makes a server that stops end its running commands. By default, those that can outlive this server are left to the
	// next one.
	End bool
	// Observe is called when a command has ended, with the time that it waited and the time that it ran. It must be quick.
	// Defaults to nil.
	Observe func(ended entry.CommandResult, waited, ran time.Duration)
}

// Commands runs the commands of threads. It is safe for concurrent use.
type Commands struct {
	config Config
	queue  jobs.Queue
	spools *spoolSpace
	// attached holds this server's commands that a program reads or writes.
	attached attachments
	// relay reaches the attached commands of other servers.
	relay *relay.Relay[call, reply]
	// refusals reports the refused connections of this server's commands.
	refusals *refusals
}

// Queue returns the queue of commands. It is the library's default queue, into which every version of this program has put
// commands.
func Queue(l jobs.Limits) jobs.Queue {
	return jobs.Queue{Name: jobs.Default, Workers: workers, Limits: l, Poll: time.Second}
}

// Running returns the number of commands that this server works on.
func (d *Commands) Running() int { return len(d.config.Jobs.Running(Kind)) }

// Spooled returns the bytes of this server's disk that hold output for possible artifacts.
func (d *Commands) Spooled() int64 { return d.spools.taken() }
