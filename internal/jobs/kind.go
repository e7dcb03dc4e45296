package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
)

// Args are the arguments of a job: a struct that JSON can hold. Arguments named house and thread say whose job it is.
type Args interface {
	// Kind returns the name of the job's kind. Names are stored, so a name is never used for something else.
	Kind() string
}

// Kind is one kind of job. All kinds have the same life cycle:
//
//	queued       it waits for a worker of its queue, in fair order if its queue has limits.
//	running      a server works on it. If only another machine can do it, the server queues it again for that machine.
//	interrupted  its server died or stopped. It is queued again, and its note says what had begun.
//	ended        the server that ends it records the result in the same transaction. It does not end again.
type Kind[A Args] struct {
	// Queue is the name of its queue.
	Queue string
	// Attempts is how often a job that fails is run. Defaults to the library's number.
	Attempts int
	// Unique: of two jobs with the same arguments, of which the first has not ended, the second is not queued.
	Unique bool
	// Timeout limits the work on a job. Defaults to no limit: the work has its own.
	Timeout time.Duration
	// Adopted: a job whose server died is continued by the next server, which begins nothing again. It does not count as an
	// attempt. By default the job is run again, as often as Attempts allows, because that is harmless.
	Adopted bool
	// LeavesLost: a server that finds out that another one has taken a job over stops working on it. By default both go on,
	// because that is harmless.
	LeavesLost bool
	// Work works on a job, until it has ended or ctx ends. If it returns nil, the job ends, unless Work has ended it. Of
	// Left, the job stays as the database says. After another error, it is run again if there are attempts left.
	Work func(context.Context, *Job[A]) error
}

var (
	// Left is what the work on a job returns that goes on elsewhere, or that has ended already.
	Left error = river.JobSnooze(0) // does nothing to a job that has ended
	// ErrCancelled is the cause of the end of a job's context if somebody cancelled the job.
	ErrCancelled error = river.ErrJobCancelledRemotely
	// ErrTakenByOther reports that another server has taken the job over.
	ErrTakenByOther = errors.New("another server works on the job")
)

// Cancelled reports whether a job's context ended because somebody cancelled the job.
func Cancelled(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrCancelled) }

// Stopped reports whether a job's context ended because its server stops.
func Stopped(ctx context.Context) bool { return ctx.Err() != nil && !Cancelled(ctx) }

// registered is a kind of any arguments.
type registered struct {
	queue               string
	attempts            int
	unique              bool
	adopted, leavesLost bool
	working             working
}

// options returns how a job of the kind is queued.
func (k *registered) options() *river.InsertOpts {
	return &river.InsertOpts{Queue: k.queue, MaxAttempts: k.attempts, UniqueOpts: river.UniqueOpts{ByArgs: k.unique}}
}

func scheduled(o *river.InsertOpts, at time.Time) *river.InsertOpts {
	o.ScheduledAt = at
	return o
}

// kind returns a kind by its name. A kind that only another version of this program knows is run again, in case a server
// of that version is there.
func (j *Jobs) kind(name string) *registered {
	if k, ok := j.kinds[name]; ok {
		return k
	}
	return &registered{}
}

// Add adds a kind, before [Jobs.Start].
func Add[A Args](j *Jobs, k Kind[A]) {
	var args A
	known := &registered{queue: k.Queue, attempts: k.Attempts, unique: k.Unique, adopted: k.Adopted, leavesLost: k.LeavesLost}
	j.kinds[args.Kind()] = known
	river.AddWorker(j.workers, &worker[A]{jobs: j, kind: k, working: &known.working})
}

// Running returns the ids of the jobs of a kind on which this server works.
func (j *Jobs) Running(kind string) []int64 { return j.kinds[kind].working.jobs() }

// worker runs the jobs of a kind.
type worker[A Args] struct {
	river.WorkerDefaults[A]
	jobs    *Jobs
	kind    Kind[A]
	working *working
}

func (w *worker[A]) Timeout(*river.Job[A]) time.Duration {
	if w.kind.Timeout == 0 {
		return -1
	}
	return w.kind.Timeout
}

func (w *worker[A]) Work(ctx context.Context, row *river.Job[A]) error {
	ctx, end, alone := w.working.begin(ctx, row.ID)
	if !alone {
		return Left
	}
	defer end()
	return w.kind.Work(ctx, &Job[A]{ID: row.ID, Args: row.Args, row: row, jobs: w.jobs})
}

// Job is a job on which this server works.
type Job[A Args] struct {
	ID   int64
	Args A
	row  *river.Job[A]
	jobs *Jobs
}

// Note decodes what was noted of the job before this server took it. Of another version's note it decodes what it can.
func (j *Job[A]) Note(into any) { note(j.row.JobRow, into) }

// Continued reports whether an earlier server had the job.
func (j *Job[A]) Continued() bool { return len(j.row.AttemptedBy) > 1 }

// Cancelled reports whether the job was cancelled before this server took it.
func (j *Job[A]) Cancelled() bool {
	var n struct {
		Cancelled bool `json:"cancelled"`
		// At is the library's own mark, which a server that was killed may not have seen.
		At time.Time `json:"cancel_attempted_at"`
	}
	j.Note(&n)
	return n.Cancelled || !n.At.IsZero()
}

// EndTx ends the job. If another server has ended it, or runs it now, it does nothing, because that one writes the result.
// ctx must have the values of the context that the kind's Work got.
func (j *Job[A]) EndTx(ctx context.Context, tx pgx.Tx) error {
	_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j.row)
	if errors.Is(err, rivertype.ErrNotFound) {
		return nil
	}
	return err
}

// SetNote adds to the note of the job, if this server holds it; otherwise it returns [ErrTakenByOther]. It retries while
// the database is unreachable. machine is the machine whose servers must continue the job; nil leaves that as it is.
func (j *Job[A]) SetNote(ctx context.Context, note any, machine *string) error {
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return db.Persist(ctx, func() error {
		return j.jobs.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			noted, err := tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set metadata = case when $4::text is null then metadata when $4 = '' then metadata - 'machine'
				  else metadata || jsonb_build_object('machine', $4) end || $2::jsonb
				where id = $1 and state = 'running' and `+holder+` = $3`, j.ID, text, j.jobs.Server().String(), machine)
			if err == nil && noted.RowsAffected() == 0 {
				err = ErrTakenByOther
			}
			return err
		})
	})
}

// Held reports whether this server still holds the job.
func (j *Job[A]) Held(ctx context.Context) (bool, error) {
	held, err := j.jobs.held(ctx, j.jobs.Server(), j.ID)
	return len(held) > 0, err
}

// HandOver queues the job again for another server: one of the given machine, or any if machine is empty. The worker must
// return what HandOver returns. A job that another server has taken over stays as it is. If the job was cancelled
// meanwhile, that server handles it, because the queue itself would end the job without writing a result.
func (j *Job[A]) HandOver(ctx context.Context, machine string) error {
	ctx, cancel := j.jobs.Lasting(ctx)
	defer cancel()
	err := db.Persist(ctx, func() error {
		return j.jobs.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set metadata = metadata - 'cancel_attempted_at'
				  || case when metadata ? 'cancel_attempted_at' then '{"cancelled": true}' else '{}' end::jsonb
				  || case when $2 = '' then '{}' else jsonb_build_object('machine', $2::text) end
				where id = $1 and `+holder+` = $3`, j.ID, machine, j.jobs.Server().String())
			return err
		})
	})
	if err != nil {
		j.jobs.logger.Warn("cannot record what the next server needs to know about a job", "job", j.ID, "error", err)
	}
	return Left
}

// PostponeTx lets the job wait until a time, if this server holds it. It does not count as an attempt.
func (j *Job[A]) PostponeTx(ctx context.Context, tx pgx.Tx, until time.Time) error {
	_, err := tx.Exec(ctx, `
		update `+db.JobSchema+`.river_job set state = 'scheduled', scheduled_at = $2, attempt = greatest(attempt - 1, 0)
		where id = $1 and state = 'running' and `+holder+` = $3`, j.ID, until, j.jobs.Server().String())
	return err
}

// AwaitEnd waits until the job, on which another server works, has ended, or ctx ends. If its worker returned earlier,
// the queue would take that for the job's end.
func (j *Job[A]) AwaitEnd(ctx context.Context) {
	for tick := time.Tick(time.Second); ctx.Err() == nil; <-tick {
		var over bool
		err := j.jobs.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select not exists (select from "+db.JobSchema+".river_job where id = $1 and state = 'running')", j.ID).Scan(&over)
		})
		if err == nil && over {
			return
		}
	}
}
