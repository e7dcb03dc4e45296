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

// Job is a job on which this server works.
type Job[A Args] struct {
	ID   int64
	Args A
	row  *river.Job[A]
	jobs *Jobs
}

// Note decodes the note that the job had when this server took it. It decodes as much as it can of another version's
// note.
func (j *Job[A]) Note(into any) { note(j.row.JobRow, into) }

// Continued reports whether another server worked on the job before.
func (j *Job[A]) Continued() bool { return len(j.row.AttemptedBy) > 1 }

// Cancelled reports whether the job was cancelled before this server took it.
func (j *Job[A]) Cancelled() bool {
	var n struct {
		Cancelled bool `json:"cancelled"`
		// At is set by the library. A killed server may not have seen it.
		At time.Time `json:"cancel_attempted_at"`
	}
	j.Note(&n)
	return n.Cancelled || !n.At.IsZero()
}

// EndTx ends the job. If another server has ended it, or runs it now, EndTx does nothing, because that server writes the
// result. ctx must have the values of the context that the kind's Work got.
func (j *Job[A]) EndTx(ctx context.Context, tx pgx.Tx) error {
	_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j.row)
	if errors.Is(err, rivertype.ErrNotFound) {
		return nil
	}
	return err
}

// SetNote adds to the note of the job, if this server holds it; otherwise it returns [ErrTakenByOther]. It retries while
// the database is unreachable. machine is the machine whose servers must continue the job; nil leaves it unchanged.
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

// AwaitEnd waits until another server has ended the job, or ctx ends. If this server's worker returned earlier, the queue
// would consider the job ended.
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

func note(row *rivertype.JobRow, into any) {
	_ = json.Unmarshal(row.Metadata, into) // another version's note may be unreadable, which must not block the job
}
