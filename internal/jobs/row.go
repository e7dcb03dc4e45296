package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/trace"
)

// traceKey is the key under which a job's metadata names the span that queued it.
const traceKey = "traceparent"

// This file queues, finds and changes jobs that this server is not working on.

// Options say how to queue a job.
type Options struct {
	// Due is when the job may run. Defaults to the zero time: at once.
	Due time.Time
	// Machine is the machine whose servers must run it. Defaults to "": any server may.
	Machine string
	// Note is the job's first note, a struct that JSON can hold. Defaults to nil: none.
	Note any
}

// InsertTx queues a job when tx commits, and wakes the servers if it is due. queued is false if its kind is unique and
// the same job already exists.
func (j *Jobs) InsertTx(ctx context.Context, tx pgx.Tx, args Args, o Options) (queued bool, err error) {
	text, err := metadata(ctx, tx, o)
	if err != nil {
		return false, err
	}
	k := j.kind(args.Kind())
	options := scheduled(k.options(), o.Due)
	options.Metadata = text
	job, err := j.river.InsertTx(ctx, tx, args, options)
	switch {
	case err != nil:
		return false, err
	case job.UniqueSkippedAsDuplicate:
		return false, nil
	case !o.Due.IsZero():
		return true, nil
	}
	return true, WakeTx(ctx, tx, k.queue)
}

// metadata returns what is kept of a job besides its arguments: its note, its machine, and the trace that it belongs to.
func metadata(ctx context.Context, tx pgx.Tx, o Options) ([]byte, error) {
	metadata := map[string]any{}
	if o.Note != nil {
		text, err := json.Marshal(o.Note)
		if err == nil {
			err = json.Unmarshal(text, &metadata)
		}
		if err != nil {
			return nil, err
		}
	}
	if o.Machine != "" {
		metadata["machine"] = o.Machine
	}
	if from := trace.Here(db.Traced(ctx, tx)); from != "" {
		metadata[traceKey] = from
	}
	return json.Marshal(metadata)
}

// Row is a job of some kind, as it was when it was read.
type Row struct{ row *rivertype.JobRow }

// ID returns the id of the job.
func (r Row) ID() int64 { return r.row.ID }

// Args decodes the arguments.
func (r Row) Args(into Args) error { return json.Unmarshal(r.row.EncodedArgs, into) }

// Note decodes the job's note. It decodes as much as it can of another version's note.
func (r Row) Note(into any) { note(r.row, into) }

// Running reports whether a server works on the job.
func (r Row) Running() bool { return r.row.State == rivertype.JobStateRunning }

// Server returns the server that took the job last. ok is false if none did.
func (r Row) Server() (s Server, ok bool) {
	if len(r.row.AttemptedBy) == 0 {
		return 0, false
	}
	return parseServer(r.row.AttemptedBy[len(r.row.AttemptedBy)-1]), true
}

// Filter selects jobs.
type Filter struct {
	// Kind is the kind of the jobs.
	Kind string
	// Args are the values of some arguments.
	Args map[string]string
	// Argument, if not empty, is the name of another argument, whose value begins with Prefix.
	Argument, Prefix string
	// Running leaves out jobs that wait.
	Running bool
	// Most limits how many are returned.
	Most int
}

// FindTx returns jobs that are waiting or running.
func (j *Jobs) FindTx(ctx context.Context, tx pgx.Tx, f Filter) ([]Row, error) {
	states := []rivertype.JobState{rivertype.JobStateRunning}
	if !f.Running {
		states = append(states, rivertype.JobStateAvailable, rivertype.JobStateScheduled)
	}
	for name, value := range f.Args {
		if strings.ContainsRune(value, 0) { // no text of Postgres has one
			return nil, fault.Newf(fault.Invalid, "leave it out", "the id of the %s has a NUL byte", name)
		}
	}
	text, err := json.Marshal(f.Args)
	if err != nil {
		return nil, err
	}
	found, err := j.river.JobListTx(ctx, tx, river.NewJobListParams().Kinds(f.Kind).States(states...).
		Where("args @> @args::jsonb and (@argument::text = '' or starts_with(args->>@argument::text, @prefix))",
			river.NamedArgs{"args": string(text), "argument": f.Argument, "prefix": f.Prefix}).First(f.Most))
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(found.Jobs))
	for i, row := range found.Jobs {
		rows[i] = Row{row}
	}
	return rows, nil
}

// LockTx locks a job until tx ends, so that no server takes, queues or ends it meanwhile, and returns it as it is now. ok is
// false if it has ended.
func (j *Jobs) LockTx(ctx context.Context, tx pgx.Tx, r Row) (locked Row, ok bool, err error) {
	row := *r.row
	err = tx.QueryRow(ctx, `
		select state::text, metadata, attempted_by from `+db.JobSchema+`.river_job
		where id = $1 and state in ('available', 'scheduled', 'running') for update`, row.ID).Scan(&row.State, &row.Metadata, &row.AttemptedBy)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false, nil
	}
	return Row{&row}, err == nil, err
}

// GetNote decodes the note of a job.
func (j *Jobs) GetNote(ctx context.Context, id int64, into any) error {
	var text []byte
	err := j.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select metadata from "+db.JobSchema+".river_job where id = $1", id).Scan(&text)
	})
	if err == nil {
		note(&rivertype.JobRow{Metadata: text}, into)
	}
	return err
}

// NoteTx adds to the note of a job.
func (j *Jobs) NoteTx(ctx context.Context, tx pgx.Tx, id int64, note any) error {
	text, err := json.Marshal(note)
	if err == nil {
		_, err = tx.Exec(ctx, "update "+db.JobSchema+".river_job set metadata = metadata || $2::jsonb where id = $1", id, text)
	}
	return err
}

// NoteWaitingTx adds to the note of a waiting job, and reports whether it did. It does nothing if the note already
// contains all of it.
func (j *Jobs) NoteWaitingTx(ctx context.Context, tx pgx.Tx, id int64, note any) (noted bool, err error) {
	text, err := json.Marshal(note)
	if err != nil {
		return false, err
	}
	done, err := tx.Exec(ctx, `
		update `+db.JobSchema+`.river_job set metadata = metadata || $2::jsonb
		where id = $1 and state = 'available' and not metadata @> $2::jsonb`, id, text)
	return done.RowsAffected() > 0, err
}

// Waiting is a job that no server has taken.
type Waiting struct {
	ID   int64
	Args json.RawMessage
	// Away reports that the machine that must run it is away.
	Away bool
}

// Unstarted returns up to most jobs of a kind that are overdue by more than after, that no server has taken, and whose
// note does not contain all of without. A machine counts as away if it was not seen for that long, and a job that needs
// such a machine is returned that much later.
func (j *Jobs) Unstarted(ctx context.Context, kind string, after, away time.Duration, without any, most int) (list []Waiting, err error) {
	text, err := json.Marshal(without)
	if err != nil {
		return nil, err
	}
	err = j.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select id, args, exists (select from machines m where m.id = metadata->>'machine' and m.seen_at < now() - $6::interval)
			from `+db.JobSchema+`.river_job
			where queue = $1 and state = 'available' and kind = $2 and not metadata @> $4::jsonb
			  and scheduled_at < now() - $3::interval - case when metadata ? 'machine' then $6::interval else interval '0' end
			order by id limit $5`, j.kind(kind).queue, kind, after, text, most, away)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Waiting])
		return err
	})
	return list, err
}

// CancelTx cancels a job. If a server works on it, the context of its worker ends with [ErrCancelled]; otherwise the job
// ends, and ended is true.
func (j *Jobs) CancelTx(ctx context.Context, tx pgx.Tx, id int64) (ended bool, err error) {
	row, err := j.river.JobCancelTx(ctx, tx, id)
	if err != nil {
		return false, err
	}
	if server, taken := (Row{row}).Server(); taken && row.State == rivertype.JobStateRunning {
		// The queue notifies its servers too, but a server that is stopping and waits for its jobs checks only once a minute.
		err = j.notifyTx(ctx, tx, server, notice{Cancel: id})
	}
	return row.State == rivertype.JobStateCancelled, err
}

// LeaveCancelledTx tells the next server that takes a job that it was cancelled; see [Job.Cancelled].
func (j *Jobs) LeaveCancelledTx(ctx context.Context, tx pgx.Tx, id int64) error {
	return j.NoteTx(ctx, tx, id, map[string]bool{"cancelled": true})
}

// RescheduleTx makes the waiting jobs of a kind with an argument due at a time; zero means now.
func (j *Jobs) RescheduleTx(ctx context.Context, tx pgx.Tx, kind, argument, value string, due time.Time) error {
	_, err := tx.Exec(ctx, `
		update `+db.JobSchema+`.river_job set
		  state = case when $4::timestamptz is null then 'available' else 'scheduled' end::`+db.JobSchema+`.river_job_state,
		  scheduled_at = coalesce($4, now())
		where kind = $1 and args @> jsonb_build_object($2::text, $3::text) and state in ('scheduled', 'available')`, kind, argument, value, db.Null(due))
	if err != nil || !due.IsZero() {
		return err
	}
	return WakeTx(ctx, tx, j.kind(kind).queue)
}

// ReplaceTx ends the running job of a kind with an argument, and queues a new one, due at a time, in its place. The
// worker of the old job must return nil. The old job cannot be reused: the queue records ends by job id, a moment
// later, and would end it after it had started again.
func (j *Jobs) ReplaceTx(ctx context.Context, tx pgx.Tx, args Args, argument, value string, due time.Time) error {
	_, err := tx.Exec(ctx, `
		update `+db.JobSchema+`.river_job set state = 'completed', finalized_at = now(), unique_key = null
		where kind = $1 and args @> jsonb_build_object($2::text, $3::text) and state = 'running'`, args.Kind(), argument, value)
	if err != nil {
		return err
	}
	queued, err := j.InsertTx(ctx, tx, args, Options{Due: due})
	if err == nil && !queued {
		err = j.RescheduleTx(ctx, tx, args.Kind(), argument, value, due)
	}
	return err
}

// Wanted is work that needs a job: the value of the argument that names it, and whether its job may wait for any length of
// time.
type Wanted struct {
	Value string
	Waits bool
}

// LostTx returns the wanted work, up to most, for which no job of a kind runs or will run soon.
func (j *Jobs) LostTx(ctx context.Context, tx pgx.Tx, kind, argument string, wanted []Wanted, soon time.Duration, most int) ([]string, error) {
	values, waits := make([]string, len(wanted)), make([]bool, len(wanted))
	for i, w := range wanted {
		values[i], waits[i] = w.Value, w.Waits
	}
	rows, err := tx.Query(ctx, `
		select w.value from unnest($3::text[], $4::bool[]) as w (value, waits)
		where not exists (select from `+db.JobSchema+`.river_job j where j.kind = $1 and j.args @> jsonb_build_object($2::text, w.value)
		  and (j.state in ('available', 'running') or j.state = 'scheduled' and (w.waits or j.scheduled_at < now() + $5::interval)))
		limit $6`, kind, argument, values, waits, soon, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// ReviveTx makes all jobs of a kind with an argument run again, including those that have ended. It returns false if
// there are none.
func (j *Jobs) ReviveTx(ctx context.Context, tx pgx.Tx, kind, argument, value string) (found bool, err error) {
	err = tx.QueryRow(ctx, `
		with j as (
		  update `+db.JobSchema+`.river_job set state = 'available', scheduled_at = now(), attempt = 0, finalized_at = null,
		    metadata = metadata - 'cancel_attempted_at'
		  where kind = $1 and args @> jsonb_build_object($2::text, $3::text) and state <> 'running' returning id
		) select exists (select from j)`, kind, argument, value).Scan(&found)
	if err != nil {
		return false, err
	}
	return found, WakeTx(ctx, tx, j.kind(kind).queue)
}

// UnbindTx lets any server run jobs of a house that wait for a machine: those of the given threads, and those whose
// note contains all of noted.
func (j *Jobs) UnbindTx(ctx context.Context, tx pgx.Tx, house, machine string, threads []string, noted any) error {
	text, err := json.Marshal(noted)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		update `+db.JobSchema+`.river_job set metadata = metadata - 'machine'
		where state = 'available' and args->>'house' = $1 and metadata->>'machine' = $2 and (args->>'thread' = any($3) or metadata @> $4::jsonb)
		returning queue`, house, machine, threads, text)
	if err != nil {
		return err
	}
	queues, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(queues)
	for _, queue := range slices.Compact(queues) {
		if err == nil {
			err = WakeTx(ctx, tx, queue)
		}
	}
	return err
}

// DeleteOfHouseTx deletes the jobs of a house that no server works on, except one.
func (j *Jobs) DeleteOfHouseTx(ctx context.Context, tx pgx.Tx, house string, but int64) error {
	_, err := tx.Exec(ctx, "delete from "+db.JobSchema+".river_job where args->>'house' = $1 and state <> 'running' and id <> $2", house, but)
	return err
}

// Count is the number of jobs of a kind in a state, on all servers together.
type Count struct {
	Kind, State string
	N           int64
	// Oldest is how long the oldest of them has waited since it was due; 0 unless State is "queued".
	Oldest time.Duration
}

// Count counts the jobs that wait or run, and those that failed for good and are still recorded. For the given kinds,
// it also returns zero counts of waiting and running jobs.
func (j *Jobs) Count(ctx context.Context, kinds ...string) ([]Count, error) {
	rows, err := j.db.Pool().Query(ctx, `
		select kind, case when state in ('available', 'scheduled', 'pending') then 'queued' when state = 'discarded' then 'failed' else state::text end, count(*),
			coalesce(extract(epoch from max(greatest(now() - scheduled_at, '0')) filter (where state = 'available')), 0) * interval '1 second'
		from `+db.JobSchema+`.river_job where state in ('available', 'scheduled', 'pending', 'retryable', 'running', 'discarded') group by 1, 2 order by 1, 2`)
	if err != nil {
		return nil, db.Explain(err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
	if err != nil {
		return nil, db.Explain(err)
	}
	for _, kind := range kinds {
		for _, state := range []string{"queued", "running"} {
			if !slices.ContainsFunc(counts, func(c Count) bool { return c.Kind == kind && c.State == state }) {
				counts = append(counts, Count{Kind: kind, State: state})
			}
		}
	}
	return counts, nil
}
