package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

// commandArgs are the arguments of a job that runs a command entry.
type commandArgs struct {
	House   string `json:"house"`
	Thread  string `json:"thread"`
	Stream  string `json:"stream"`
	Command string `json:"command"` // the entry's id
}

// Kind is the job's kind.
func (commandArgs) Kind() string { return "run_command" }

// InsertOpts: the queue never retries a command, because a command may have side effects and must not run twice. A
// command that is requested again with the same id is the same job.
func (commandArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: commands, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

func (a commandArgs) log() stream.Ref { return stream.Ref{House: a.House, Name: a.Stream} }

// RunCommand writes a command to a thread's log and queues it in one transaction, and returns its entry. id makes a
// retry harmless; if it is empty, one is generated. The sandbox is resolved, and created if necessary, when the command
// starts; errors of that are in the command's result. If the command must wait for others of its thread or house, an
// entry in the log says so. If too many are waiting already, the error is a [fault.Exhausted]. An id that belongs to a
// different entry, or to an entry that a fork inherited, is a [fault.Exists].
func (d *Dispatcher) RunCommand(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := entry.CheckID(id, entry.Anyone); err != nil {
		return entry.Entry{}, err
	}
	return d.runCommand(ctx, scope, threadID, id, c)
}

// runCommand is RunCommand with any id.
func (d *Dispatcher) runCommand(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := c.Validate(); err != nil {
		return entry.Entry{}, err
	}
	if c.EnvironmentID != "" {
		if _, err := d.boxes.Environment(ctx, scope, c.EnvironmentID); err != nil {
			return entry.Entry{}, err
		}
	}
	if id == "" {
		id = uuid.NewString()
	}
	draft := entry.NewDraft(id, scope.Agent, c)
	if err := entry.Check(draft, entry.Server); err != nil {
		return entry.Entry{}, err
	}
	err = d.runTx(ctx, scope, threadID, []entry.Draft{draft}, func(tx pgx.Tx, to stream.Ref, drafts []entry.Draft) ([]entry.Entry, error) {
		entries, err := d.log.AppendTx(ctx, tx, to, drafts...)
		if err != nil {
			return nil, err
		}
		said = entries[0]
		return entries, entry.Repeated(drafts[0], said)
	})
	return said, err
}

// enqueueTx queues a command unless it was queued before. before is the load of its house without it.
func (d *Dispatcher) enqueueTx(ctx context.Context, tx pgx.Tx, args commandArgs, before load) error {
	waiting, waits := before.waits(d.limits)
	machine, err := d.boxes.ThreadMachineTx(ctx, tx, args.Thread)
	if err != nil {
		return err
	}
	job, err := d.queue.InsertTx(ctx, tx, args, &river.InsertOpts{Metadata: note{WaitReported: waits, Machine: machine}.json()})
	if err != nil || job.UniqueSkippedAsDuplicate {
		return err
	}
	if err := before.refuses(d.limits); err != nil {
		return err
	}
	if waits {
		if err := d.reportWaitTx(ctx, tx, args, waiting); err != nil {
			return err
		}
	}
	return wakeTx(ctx, tx, commands)
}

// note is what dispatch records in a job's metadata.
type note struct {
	// WaitReported: an entry in the command's thread says what it waits for.
	WaitReported bool `json:"wait_reported,omitempty"`
	// Machine is the machine whose servers must run it. If it is empty, any server may.
	Machine string `json:"machine,omitempty"`
	// Begun says where the command was begun, or may have been; nil if it was not.
	Begun *begun `json:"begun,omitempty"`
	// InputEnded: the command got all of its input. Otherwise the next server ends the command, because it cannot know
	// which part of the input was passed on.
	InputEnded bool `json:"input_ended,omitempty"`
	// Cancelled: the server that continues the command must end it. CancelAttempted is the queue's own mark, which a
	// server that was killed may not have seen.
	Cancelled bool `json:"cancelled,omitempty"`
	// Cancel says how it is cancelled.
	Cancel          *cancellation `json:"cancel,omitempty"`
	CancelAttempted time.Time     `json:"cancel_attempted_at,omitzero"`
}

// begun says where a command was begun.
type begun struct {
	Sandbox string `json:"sandbox"`
	// Launched: the command outlives the server that began it, so the next one can follow it. Otherwise it ended with
	// its server.
	Launched bool `json:"launched,omitempty"`
	// Secrets are the names and revisions of the secrets that it receives.
	Secrets map[string]int64 `json:"secrets,omitempty"`
}

func (n note) json() []byte {
	text, _ := json.Marshal(n)
	return text
}

// noted returns what is recorded in a job.
func noted(job *rivertype.JobRow) (n note) {
	_ = json.Unmarshal(job.Metadata, &n) // another version's metadata may be unreadable, which must not block the job
	return n
}

// waitReported is the metadata for WaitReported.
const waitReported = `{"wait_reported": true}`

// reportWaitTx appends an entry that says what a command waits for.
func (d *Dispatcher) reportWaitTx(ctx context.Context, tx pgx.Tx, args commandArgs, w entry.CommandWaiting) error {
	w.CommandID = args.Command
	_, err := d.log.AppendTx(ctx, tx, args.log(), entry.NewDraft("", "", w))
	return err
}

// result returns the draft of a command's result. Its id is derived from the command's, so that a command has one
// result, whichever server writes it first.
func result(commandID string, r entry.CommandResult) entry.Draft {
	r.CommandID = commandID
	return entry.NewDraft(entry.ResultID(commandID), "", r)
}

type commandWorker struct {
	river.WorkerDefaults[commandArgs]
	*Dispatcher
}

// Timeout disables the queue's time limit, because the command has its own.
func (w *commandWorker) Timeout(*river.Job[commandArgs]) time.Duration { return -1 }

// Work runs the command and writes its result. If an earlier server began the command, this one follows it. If the
// server stops before the command begins, or while a command runs that outlives the server, the job is left to another
// server or to the next start of this one.
func (w *commandWorker) Work(ctx context.Context, job *river.Job[commandArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("command", job.Args.Command))
	ctx, end, alone := w.working.begin(ctx, job.ID)
	if !alone {
		return river.JobSnooze(0) // does nothing to a job that has ended
	}
	defer end()
	w.shares.asks(job.Args.House)

	var said entry.Entry
	err := persist(ctx, func() (err error) {
		said, err = w.pendingCommand(ctx, job)
		return err
	})
	var ran run
	switch {
	case err == nil:
		if said.ID == "" {
			return w.end(ctx, job, nil)
		}
		ran = w.run(ctx, job, said)
		switch {
		case ran.takenByOther:
			w.waitUntilEnded(ctx, job.ID)
			return river.JobSnooze(0) // does nothing to a job that has ended
		case ran.handOver, ran.machine != "":
			return w.handOver(ctx, job.ID, ran.machine)
		}
	case cancelled(ctx):
		ran.ended = entry.CommandResult{ExitCode: -1, Cancelled: true, CancelledBy: w.cancellation(job.ID).By}
	case stopped(ctx):
		return w.handOver(ctx, job.ID, "")
	default:
		failure := fault.From(err)
		w.logger.ErrorContext(ctx, "a command could not be started", "error", failure.Detail())
		ran.ended = entry.CommandResult{ExitCode: -1, Error: failure.Error()}
	}
	w.logger.DebugContext(ctx, "a command ended", "exit_code", ran.ended.ExitCode, "took_ms", ran.ended.DurationMS, "sandbox", ran.ended.SandboxID)
	if ran.whole != nil {
		err := w.endKept(ctx, job, ran.ended, ran.whole)
		if err == nil {
			w.forget(job, ran)
			return nil
		}
		// Write the result without the artifact, because the result matters more. If another server has written one,
		// writing it again does nothing.
		if !errors.Is(err, errAlreadyEnded) {
			w.notKept(ctx, err)
		}
	}
	err = w.end(ctx, job, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.log.AppendTx(ctx, tx, job.Args.log(), result(job.Args.Command, ran.ended))
		return err
	})
	if fault.CodeOf(err) == fault.NotFound { // the thread was deleted meanwhile, so the job must not fail
		err = w.end(ctx, job, nil)
	}
	if err == nil {
		w.forget(job, ran)
	}
	return err
}

// cancelled reports whether a person cancelled the job, and stopped whether its server is stopping.
func cancelled(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely)
}
func stopped(ctx context.Context) bool { return ctx.Err() != nil && !cancelled(ctx) }

// pendingCommand returns the job's command, or the zero Entry if there is nothing to do, because its thread was deleted
// or another server, which took this one for dead, wrote the result.
func (w *commandWorker) pendingCommand(ctx context.Context, job *river.Job[commandArgs]) (entry.Entry, error) {
	args := job.Args
	// A previous server may have ended it, or the same command was asked for again long after it ended.
	_, err := w.log.Get(ctx, args.log(), entry.ResultID(args.Command))
	if fault.CodeOf(err) != fault.NotFound {
		return entry.Entry{}, err
	}
	said, err := w.log.Get(ctx, args.log(), args.Command)
	if fault.CodeOf(err) == fault.NotFound {
		return entry.Entry{}, nil
	}
	return said, err
}

// run is the result of working on a command on this server.
type run struct {
	ended entry.CommandResult
	whole *kept // its output, if ended does not hold all of it
	// handle is the sandbox in which it was launched; nil if it was not.
	handle *sandbox.Handle
	// handOver: it has not ended or not begun, and the next server continues it. machine is the machine whose servers
	// must, if any.
	handOver bool
	machine  string
	// takenByOther: another server works on it.
	takenByOther bool
}

// run runs a command in the thread's sandbox and publishes its output.
func (w *commandWorker) run(ctx context.Context, job *river.Job[commandArgs], said entry.Entry) (ran run) {
	args := job.Args
	c, ok := entry.As[entry.Command](said)
	if !ok {
		ran.ended = entry.CommandResult{ExitCode: -1, Error: "this command cannot be read; run it again"}
		return ran
	}
	out := newOutput(ctx, w.log, args.log(), entry.ResultID(said.ID))
	out.shows = func(n int) int { return w.shares.shows(args.House, n) }
	to, detach := w.attach(args, c, out)
	defer func() { detach(ran.handOver || ran.takenByOther || ran.machine != "") }()
	out.to = to
	if w.config.Artifacts != nil {
		out.spool = newSpool(w.config.SpoolDir, w.config.Artifacts.MaxSize, args.House, w.spools)
		defer out.spool.close()
	}
	scope := db.Scope{House: args.House, Agent: said.Author}
	var on string // the sandbox that it ran in, or may have
	var got sandbox.Result
	var err error
	var received secret.Received
	start := time.Now()
	notes := noted(job.JobRow)
	if notes.Cancelled || !notes.CancelAttempted.IsZero() {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(river.ErrJobCancelledRemotely)
	}
	if notes.Begun == nil {
		err = w.boxes.Use(ctx, scope, args.Thread, c.EnvironmentID, func(p sandbox.Handle) (err error) {
			ran.handle = nil
			cmd := program(c)
			limit, err := p.Timeout(time.Duration(c.TimeoutMS) * time.Millisecond)
			if err != nil {
				return err
			}
			if received, err = w.receive(ctx, args.House, p.Secrets()); err != nil {
				return err
			}
			cmd.Env = received.Env
			out.receives(received)
			launcher, launches := p.Launcher()
			if err := w.noteBegun(ctx, job.ID, p, launches, received); err != nil {
				return err
			}
			on, start = p.ID, time.Now()
			if launches {
				ran.handle = &p
				if got, err = w.attend(ctx, launcher, p.Ref, job, cmd, limit, out); errors.Is(err, errSandboxEnded) {
					err = nil
				}
			} else {
				cmd.Timeout = limit
				got, err = w.exec(ctx, args.House, p, cmd, out)
			}
			return err
		})
	} else {
		on, got, ran.handle, err = w.adopt(ctx, scope, job, notes, c, out)
	}
	ran.ended = out.close()
	away, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	switch {
	case elsewhere:
		ran.machine = away.Machine
		return ran
	case errors.Is(err, errTakenByOther):
		ran.takenByOther = true
		return ran
	case errors.Is(err, errHandedOver), on == "" && stopped(ctx):
		ran.handOver = true
		return ran
	}
	if to.feed != nil {
		ran.ended.RawBytes = to.feed.printed()
	}
	if ran.ended.Truncated && out.spool != nil {
		ran.whole = w.keep(ctx, args, c, out.spool)
	}
	r := &ran.ended
	r.SandboxID, r.ExitCode, r.TimedOut, r.OutOfMemory = on, got.ExitCode, got.TimedOut, got.OutOfMemory
	r.DurationMS = got.Duration.Milliseconds()
	if err == nil {
		return ran
	}
	r.ExitCode = -1
	if r.DurationMS == 0 && notes.Begun == nil {
		r.DurationMS = time.Since(start).Milliseconds()
	}
	switch {
	case cancelled(ctx):
		r.Cancelled, r.CancelledBy = true, w.cancellation(job.ID).By
		if c, ok := errors.AsType[*cancelledError](err); ok {
			r.ExitCode, r.Signal = got.ExitCode, string(c.sent)
		}
	case errors.Is(err, errInputCut):
		r.Error = inputCut
	case errors.Is(err, errCutOff), stopped(ctx):
		r.Error = interrupted
	case errors.Is(err, errOutcomeUnknown):
		w.logger.WarnContext(ctx, "the outcome of a command is unknown", "error", err)
		r.Error = outcomeUnknown
	default:
		failure := fault.From(err)
		w.logger.WarnContext(ctx, "a command could not run", "error", failure.Detail())
		if r.Error = received.Redactor.String(failure.Error()); ran.handle != nil || failure.Code != fault.Unavailable && failure.Code != fault.Internal {
			r.SandboxID = "" // nothing has run
		}
	}
	return ran
}

// receive returns the secrets that a command receives. It retries while the database or a KMS is unreachable.
func (w *commandWorker) receive(ctx context.Context, house string, bindings []secret.Binding) (got secret.Received, err error) {
	err = persist(ctx, func() error {
		got, err = w.config.Secrets.Receive(ctx, house, bindings)
		return err
	})
	return got, err
}

// receives makes the output remove the secrets that its command receives. It must be called before anything is written.
func (o *output) receives(r secret.Received) {
	o.redact(r.Redactor)
	if o.to.feed != nil {
		o.to.feed.redact(r.Redactor)
	}
}

// program returns what to run for a command. Both outputs are one pipe, so that the log has the lines in the order in
// which they were written. A terminal instead of the pipe would also keep the order, but programs write more to a
// terminal: colours, progress bars, questions, and \r before each line break. With Separate there are two pipes.
//
// The command waits for this server when it prints faster than its output is read, because otherwise a part of the
// output would be missing in its artifact.
func program(c entry.Command) sandbox.Command {
	return sandbox.Command{Argv: c.Program(), Merged: !c.Separate, Complete: true, Input: c.Input}
}

// waitUntilEnded waits until a job that another server works on has ended. If this worker returned earlier, the queue
// would take that for the job's end.
func (w *commandWorker) waitUntilEnded(ctx context.Context, job int64) {
	for tick := time.Tick(time.Second); ctx.Err() == nil; <-tick {
		var over bool
		err := w.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select not exists (select from "+db.JobSchema+".river_job where id = $1 and state = 'running')", job).Scan(&over)
		})
		if err == nil && over {
			return
		}
	}
}

// noteBegun records that a command may begin from now on, and where, so that no other server begins it.
func (w *commandWorker) noteBegun(ctx context.Context, job int64, p sandbox.Handle, launched bool, received secret.Received) error {
	n := note{Begun: &begun{Sandbox: p.ID, Launched: launched, Secrets: received.Revisions}}
	if launched {
		n.Machine = p.Machine // other machines' servers cannot follow it, so the queue must not give it to them
	}
	return persist(ctx, func() error {
		return w.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			noted, err := tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set metadata = metadata - 'machine' || $2::jsonb
				where id = $1 and state = 'running' and `+holder+` = $3`, job, n.json(), w.liveness.name())
			if err == nil && noted.RowsAffected() == 0 {
				err = errTakenByOther
			}
			return err
		})
	})
}

// noteInputEnded records [note.InputEnded].
func (w *commandWorker) noteInputEnded(ctx context.Context, job int64) error {
	return persist(ctx, func() error {
		return w.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update "+db.JobSchema+".river_job set metadata = metadata || $2::jsonb where id = $1 and state = 'running' and "+holder+" = $3",
				job, note{InputEnded: true}.json(), w.liveness.name())
			return err
		})
	})
}

const (
	// interrupted is the error of a command that was ended with its server.
	interrupted = "the server stopped while the command was running; what it has done stays, so run it again only if you need the rest"
	// inputCut is the error of a command whose input ended early. The end of the input would have told it that the
	// input was complete.
	inputCut = "the command's input ended early because its writer or its server was gone, so the command was ended; run it again"
	// outcomeUnknown is the error of a command whose end is unknown.
	outcomeUnknown = "it is not known how the command ended, or whether it began; look at what it has done before you run it again"
)

// end ends a job and lets write record how its command ended, in one transaction; a nil write records nothing. Then
// servers look for a job to run instead. end works also while the server is stopping, and retries however long the
// database is unreachable, because nobody else would write the result of the command.
func (w *commandWorker) end(ctx context.Context, job *river.Job[commandArgs], write func(context.Context, pgx.Tx) error) error {
	// The context keeps the job's values, because the library finds its client there, but not its end.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(w.resultCtx, cancel)()
	return persist(ctx, func() error {
		return w.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error {
			if err := lockCommandsTx(ctx, tx, job.Args.House); err != nil {
				return err
			}
			// If another server ended the job, it also wrote the result. If another one runs it now, that one ends it, and
			// finds the result.
			if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil && !errors.Is(err, rivertype.ErrNotFound) {
				return err
			}
			if write != nil {
				if err := write(ctx, tx); err != nil {
					return err
				}
			}
			return wakeTx(ctx, tx, commands)
		})
	})
}

// deadlock is the SQLSTATE of a transaction that Postgres aborted because of a deadlock. Trying again helps,
// because the other transaction has continued.
const deadlock = "40P01"

// persist retries while the database is unreachable or full, until ctx ends. An error would end the job, which the queue
// does not retry.
func persist(ctx context.Context, f func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f()
		if code := fault.CodeOf(err); code != fault.Unavailable && code != fault.Exhausted && db.State(err) != deadlock {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
