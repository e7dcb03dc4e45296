// Package dispatch turns messages into work.
//
// One operation writes chats and commands ([Dispatcher.Say], say.go). For every entry of a thread, however it came into the
// log, a server decides exactly once which work it asks for (decide.go). A cursor per thread records which entries are
// decided. The alternative, a row per entry that the append inserts and the decision deletes, would cost every append two
// writes and need one decision per entry in a burst. A cursor costs appends nothing, and one update decides all entries
// since the last one. In return, no index lists the threads that a killed server left undecided: to find them, servers
// check all cursors, at about 5 µs per thread.
//
// An entry may ask for the turns of bots (choose.go, trigger.go), which are jobs (turns.go). Tools act on behalf of the bots
// that call them (tools.go). Package command runs commands, for people and for bots.
//
// A second cursor records which decided entries are searchable (index.go), so that decisions do not wait for indexing.
package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fair"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/retention"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Config configures [Start]. All fields up to Logger are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// Limits restrict the work of each house and thread. Defaults to those of the zero [Limits].
	Limits Limits
	// Artifacts stores output that does not fit into a command's result. Defaults to nil, which drops that output.
	Artifacts *artifact.Artifacts
	// Secrets provides the secrets that environments bind for their commands. Required if an environment binds one.
	Secrets *secret.Secrets
	// SpoolDir is the directory for long output of running commands. Defaults to the directory for temporary files.
	SpoolDir string
	// SpoolSize limits the total bytes in SpoolDir, so that commands cannot fill its disk. Long output counts twice, because
	// the sandbox keeps it for the next server too. Beyond the limit, only the beginning of an output is kept. Defaults to
	// [command.DefaultSpoolSize].
	SpoolSize int64
	// LogQuota limits the logs of a house, in bytes as the database stores them. Defaults to [DefaultLogQuota].
	LogQuota int64
	// MemberLogQuota limits how much of a house's logs a member who is not an owner writes, including the results of the
	// member's commands. Defaults to [DefaultMemberLogQuota].
	MemberLogQuota int64
	// Bots configures the turns of bots. DB, Log, Logger, Tools, Queue, Setting, Park and Files are set by the dispatcher. It
	// may be zero if no turns are requested.
	Bots turn.Config
	// Rosters returns the bots of houses, whose policies decide which chats begin turns. Defaults to nil: no chat does.
	Rosters Rosters
	// Mentions notifies people that a chat mentions them. Defaults to nil, which notifies nobody.
	Mentions Mentions
	// Runs configures the runs of coding agents. DB, Log, Threads, Boxes, Logger, Jobs, Secrets, Artifacts and Wake are set
	// by the dispatcher. Defaults to the zero value: there are no coding agents.
	Runs run.Config
	// Fetch limits what bots may fetch from the internet.
	Fetch Fetch
	// Select returns the work that new entries ask for. Defaults to the turns of bots, if there are Rosters.
	Select Selector

	// EndCommands makes [Dispatcher.Stop] end running commands. By default, Stop leaves those that can outlive this server to
	// the next one.
	EndCommands bool
	// ObserveCommand is called when a command has ended; see [command.Config]. Defaults to nil.
	ObserveCommand func(ended entry.CommandResult, waited, ran time.Duration)

	// Jobs holds the queue's optional settings. [Start] sets the required ones.
	Jobs jobs.Config
	// foreground defaults to the constant of the same name. Tests change it.
	foreground time.Duration
}

// Dispatcher decides which work entries ask for, and gets it done. It is safe for concurrent use.
type Dispatcher struct {
	// Jobs runs the work: Commands runs commands, and Runs the tasks delegated to coding agents.
	Jobs     *jobs.Jobs
	Commands *command.Commands
	Runs     *run.Runs
	// Retention deletes the threads and artifacts that houses no longer keep.
	Retention *retention.Retention

	db      *db.DB
	log     *stream.Log
	threads *thread.Threads
	boxes   *sandbox.Resolver
	logger  *slog.Logger
	config  Config
	limits  Limits
	output  *fair.Output
	// saidIn is nil if nothing is traced.
	saidIn *saidIn
	logs   *logSizes
	// chooser is nil if another Selector chooses.
	chooser *chooser
	// bots runs the turns of bots.
	bots *turn.Runner
	// files holds the files that bots are changing now.
	files pathLocks
	// tools holds the bots' tools, created once.
	tools         []turn.Tool
	stopHeartbeat func()
}

// Drain stops taking jobs, and waits until those that this server is running have ended. It returns nil if ctx ends first.
// Jobs queued in the meantime are left to other servers and the next start. Call [Dispatcher.Stop] after it.
func (d *Dispatcher) Drain(ctx context.Context) error { return d.Jobs.Drain(ctx) }

// CountJobs counts jobs; see [jobs.Jobs.Count]. Waiting and running commands are counted even if there are none, so that
// their metrics are 0 rather than missing.
func (d *Dispatcher) CountJobs(ctx context.Context) ([]jobs.Count, error) {
	return d.Jobs.Count(ctx, command.Kind)
}

// Stop ends this server's work, and waits for it until ctx ends. Commands that can outlive this server continue, and the next
// server follows them; [Config.EndCommands] ends them instead. The result of a command that ends is written to its thread's
// log. Entries that arrive later are still decided until the log closes.
func (d *Dispatcher) Stop(ctx context.Context) error {
	defer d.stopHeartbeat()
	return d.Jobs.Stop(ctx)
}
