package command

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

// cancelLookup limits one look at how a command is cancelled, so that an unreachable database does not delay the next signal
// for long.
const cancelLookup = 5 * time.Second

// work is this server's work on one command.
type work struct {
	*Commands
	job *jobs.Job[jobArgs]
	// note is the job's note when this server took it.
	note note
	// said is the command's entry, and command is its content.
	said    entry.Entry
	command entry.Command
	// out collects its output, and to connects it with the program that requested it.
	out *output
	to  *attachment
	// missing are the files that it did not find.
	missing []string
	// received are the secrets that it receives.
	received secret.Received

	ended entry.CommandResult
	kept  *kept // its output, if ended does not hold all of it
	// launched is the command in its sandbox; nil if it was not launched.
	launched *launched
	// handOver means that the command has not ended, and that the next server continues it. machine, if set, is the
	// machine whose servers must do so.
	handOver bool
	machine  string
	// takenByOther means that another server works on it.
	takenByOther bool
}

// kept is an output in the blob store to which no artifact refers yet.
type kept struct {
	artifact.Upload
	artifact.Draft
	part bool // there was more output
}

// find finds the job's command. It finds none if there is nothing left to do: the thread was deleted, or another server
// considered this one dead and wrote the result.
func (w *work) find(ctx context.Context) error {
	args := w.job.Args
	// A previous server may have ended the command, or somebody requested it again long after its end.
	_, err := w.config.Log.Get(ctx, args.log(), entry.ResultID(args.Command))
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	said, err := w.config.Log.Get(ctx, args.log(), args.Command)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	} else if err == nil {
		w.said = said
	}
	return err
}

// receive returns the secrets that the command receives. It retries while the database or a KMS is unreachable.
func (w *work) receive(ctx context.Context, bindings []secret.Binding) (got secret.Received, err error) {
	err = db.Persist(ctx, func() error {
		got, err = w.config.Secrets.Receive(ctx, w.job.Args.House, bindings)
		return err
	})
	return got, err
}

// noteBegun records that the command may now begin, and where, so that no other server starts it.
func (w *work) noteBegun(ctx context.Context, p sandbox.Handle, launched bool) error {
	machine := ""
	if launched {
		machine = p.Machine // only servers of this machine can follow the command, so only they may get the job
	}
	at := begun{Sandbox: p.ID, Launched: launched, Missing: w.missing, Secrets: w.received.Revisions}
	for _, b := range p.Secrets() {
		if _, received := at.Secrets[b.Name]; received && b.File != "" {
			if at.SecretFiles == nil {
				at.SecretFiles = map[string]string{}
			}
			at.SecretFiles[b.Name] = b.File
		}
	}
	return w.job.SetNote(ctx, note{Begun: &at}, &machine)
}

// cancellation returns the cancellation that the job records. If the database does not answer, it returns the zero value
// instead of an error, because the command must end in any case.
func (w *work) cancellation() cancellation {
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), cancelLookup)
	defer cancel()
	var n note
	if w.config.Jobs.GetNote(ctx, w.job.ID, &n) != nil || n.Cancel == nil {
		return cancellation{}
	}
	return *n.Cancel
}

// end ends the job and lets write record how its command ended, in one transaction; a nil write records nothing. Then
// servers look for a job to run instead. end works also while the server is stopping, and retries for as long as the database
// is unreachable, because nobody else would write the result of the command.
func (w *work) end(ctx context.Context, write func(context.Context, pgx.Tx) error) error {
	ctx, cancel := w.config.Jobs.Lasting(ctx)
	defer cancel()
	return db.Persist(ctx, func() error {
		return w.config.DB.In(ctx, db.Scope{House: w.job.Args.House}, func(tx pgx.Tx) error {
			if err := lockTx(ctx, tx, w.job.Args.House); err != nil {
				return err
			}
			// If another server ended the job, it also wrote the result. If another one runs it now, that one ends it, and
			// finds the result.
			if err := w.job.EndTx(ctx, tx); err != nil {
				return err
			}
			if write != nil {
				if err := write(ctx, tx); err != nil {
					return err
				}
			}
			return jobs.WakeTx(ctx, tx, w.queue.Name)
		})
	})
}
