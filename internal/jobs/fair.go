package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
)

const (
	// keptFree is the fraction of a queue's workers that is reserved for persons with nothing running, so that a few
	// persons with long jobs cannot occupy all.
	keptFree = 1. / 8
	// takeTimeout limits one search for jobs, because the other servers wait for its lock.
	takeTimeout = 10 * time.Second
)

// fairDriver is the library's Postgres driver with our way to choose the next jobs.
type fairDriver struct {
	*riverpgxv5.Driver
	pilot *fairPilot
}

func (d *fairDriver) PluginInit(*baseservice.Archetype) {}
func (d *fairDriver) PluginPilot() riverpilot.Pilot     { return d.pilot }
func (d *fairDriver) chooses(c *river.Client[pgx.Tx]) bool {
	return c.Pilot() == riverpilot.Pilot(d.pilot)
}

// fairPilot chooses the next jobs fairly by person, house and thread, and changes only jobs that its server holds. It
// leaves everything else to the library.
type fairPilot struct {
	riverpilot.StandardPilot
	// server is the name under which this server takes jobs.
	server Server
	db     *db.DB
	driver *riverpgxv5.Driver
	shares map[string]Queue
	kinds  map[string]*registered
	// machines returns this server's own machines. Any server may run the jobs of a machine that was not seen for
	// machineGone.
	machines    func() []string
	machineGone time.Duration

	mu sync.Mutex
	// unsure are jobs that this server may have taken: the database did not confirm the commit. Without this list they could
	// count as running here although nobody runs them.
	unsure []int64
}

// take selects the next jobs of a queue: at most @most jobs of the persons, houses and threads that run the fewest. A job's
// place is the number of jobs of its person that would run with it. Persons take turns by that place, houses of a person
// and threads of a house likewise, and among equals the oldest job is first. Places beyond the limits wait. A job without a
// house or thread counts as its own house or thread, and a house without a person as its own person. Jobs of other machines
// are left to those machines, unless they are gone.
//
// Its cost grows with what runs and with the number of houses whose jobs wait, and not with the number of these jobs,
// because indexes (db/jobs.sql) lead to the few that could be next:
//
//	head       the oldest job of each house, found by jumping from house to house.
//	chosen     the houses that come first. Each gives at least one job, unless its threads are at their limits (full).
//	candidate  of each chosen house the first jobs of up to @threads threads, found by jumping from thread to thread,
//	           and its oldest jobs. Every job therefore becomes the next one at some time, however many threads there are.
const take = `
	with recursive machine as materialized (
	  select '' as id union select unnest(@machines::text[]) union select m.id from machines m where m.seen_at < now() - @machine_gone::interval
	), head (machine, house, oldest) as (
	  select m.id, h.house, h.id from machine m cross join lateral (
	    select ` + jobHouse + ` as house, id from ` + waitingJobs + ` and ` + jobMachine + ` = m.id order by ` + jobHouse + `, id limit 1) h
	  union all
	  select head.machine, h.house, h.id from head cross join lateral (
	    select ` + jobHouse + ` as house, id from ` + waitingJobs + ` and ` + jobMachine + ` = head.machine and ` + jobHouse + ` > head.house
	    order by ` + jobHouse + `, id limit 1) h
	), running as materialized (
	  select ` + jobHouse + ` as house, ` + jobThread + ` as thread, count(*) as n from ` + db.JobSchema + `.river_job
	  where queue = @queue and state = 'running' group by 1, 2
	), person as materialized (
	  select * from persons_of(array(select house from head union select house from running))
	), person_running as (
	  select coalesce(p.person, r.house) as person, sum(n) as n from running r left join person p using (house) group by 1
	), waiting_house as (
	  select w.house, coalesce(p.person, w.house) as person, w.oldest, coalesce(r.n, 0) as runs, coalesce(r.fullest >= @thread, false) as is_full
	  from (select house, min(oldest) as oldest from head group by house) w
	  left join (select house, sum(n) as n, max(n) as fullest from running group by house) r using (house)
	  left join person p using (house)
	), ranked as (
	  select w.*, coalesce(p.n, 0) as person_runs, coalesce(p.n, 0) + row_number() over (partition by w.person order by w.runs, w.oldest) as best
	  from waiting_house w left join person_running p using (person)
	  where w.runs < @house and coalesce(p.n, 0) < @person
	), chosen as materialized (
	  select * from (
	    select *, count(*) filter (where not is_full) over (order by best, oldest rows between unbounded preceding and 1 preceding) as sure from ranked) r
	  where sure < @most
	), place as materialized ( -- otherwise the planner would look for candidates in all houses before it drops those not chosen
	  select c.*, h.machine from chosen c join head h using (house)
	), candidate as (
	  select h.house, h.person, h.runs, h.person_runs, j.id, j.thread from place h cross join lateral (
	    (with recursive thread (id, n) as (
	      (select ` + jobThread + `, 1 from ` + waitingJobs + ` and ` + jobMachine + ` = h.machine and ` + jobHouse + ` = h.house
	       order by ` + jobThread + ` limit 1)
	      union all
	      select t.id, thread.n + 1 from thread cross join lateral (
	        select ` + jobThread + ` as id from ` + waitingJobs + ` and ` + jobMachine + ` = h.machine and ` + jobHouse + ` = h.house
	          and ` + jobThread + ` > thread.id order by ` + jobThread + ` limit 1) t
	      where thread.n < @threads
	    )
	    select j.id, thread.id as thread from thread left join running r on r.house = h.house and r.thread = thread.id cross join lateral (
	      select id from ` + waitingJobs + ` and ` + jobMachine + ` = h.machine and ` + jobHouse + ` = h.house and ` + jobThread + ` = thread.id
	      order by id limit least(@most, greatest(@thread - coalesce(r.n, 0), 0))) j)
	    union
	    (select id, ` + jobThread + ` from ` + waitingJobs + ` and ` + jobMachine + ` = h.machine and ` + jobHouse + ` = h.house
	     order by id limit @most)
	  ) j
	), by_thread as (
	  select c.*, coalesce(r.n, 0) + row_number() over (partition by c.house, c.thread order by c.id) as thread_place
	  from candidate c left join running r using (house, thread)
	), by_house as (
	  select *, runs + row_number() over (partition by house order by thread_place, id) as house_place from by_thread where thread_place <= @thread
	), by_person as (
	  select *, person_runs + row_number() over (partition by person order by house_place, id) as person_place from by_house where house_place <= @house
	), next as (
	  select id, person_place, row_number() over (order by person_place, id) as place from by_person where person_place <= @person
	)
	update ` + db.JobSchema + `.river_job j
	set state = 'running', attempt = j.attempt + 1, attempted_at = now(),
	  attempted_by = array_append(j.attempted_by[greatest(1, coalesce(array_length(j.attempted_by, 1), 0) + 2 - @kept_names):], @server)
	where j.state = 'available' and j.id = any (array( -- and no join, for which the planner would read all jobs
	  select id from next n where n.place <= @most and (n.place <= @most - @reserve or n.person_place = 1)))
	returning j.id`

// The indexes of db/jobs.sql are on these expressions. A job that was committed after the transaction began is also
// due, so the condition does not use now().
const (
	jobMachine  = "coalesce(metadata->>'machine', '')"
	jobHouse    = "coalesce(args->>'house', id::text)"
	jobThread   = "coalesce(args->>'thread', id::text)"
	waitingJobs = db.JobSchema + ".river_job where queue = @queue and state = 'available' and scheduled_at <= statement_timestamp()"
)

// threadsLooked is how many threads of a house take considers, besides those of its oldest jobs.
const threadsLooked = 64

// byIndex makes the planner use the indexes, because it may keep a plan from a time when the table was small.
const byIndex = "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"

// JobGetAvailable takes the next jobs of a queue for this server. Servers do this one at a time, so that each counts
// the jobs of the others.
func (p *fairPilot) JobGetAvailable(ctx context.Context, exec riverdriver.Executor, state riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	s, shared := p.shares[params.Queue]
	if !shared || params.MaxToLock <= 0 {
		return p.StandardPilot.JobGetAvailable(ctx, exec, state, params)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	var ids []int64
	var jobs []*rivertype.JobRow
	err := p.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		if ids, err = p.taken(ctx, tx, params.ClientID); err != nil {
			return err
		}
		var any bool
		err = tx.QueryRow(ctx, "select exists (select from "+db.JobSchema+".river_job where queue = $1 and state = 'available')", params.Queue).Scan(&any)
		if err != nil {
			return err
		}
		if any {
			if _, err = tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('arbe.queue'), hashtext($1)), "+byIndex, params.Queue); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, take, pgx.NamedArgs{
				"queue": params.Queue, "server": params.ClientID, "person": s.Limits.PersonRunning, "house": s.Limits.HouseRunning, "thread": s.Limits.ThreadRunning, "threads": threadsLooked, "most": params.MaxToLock - len(ids),
				"reserve": int(float64(s.Workers) * keptFree), "kept_names": params.MaxAttemptedBy,
				"machines": p.machines(), "machine_gone": p.machineGone,
			})
			if err != nil {
				return err
			}
			more, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			ids = append(ids, more...)
		}
		if len(ids) > 0 {
			jobs, err = p.driver.UnwrapExecutor(tx).JobGetByIDMany(ctx, &riverdriver.JobGetByIDManyParams{ID: ids, Schema: params.Schema})
		}
		return err
	})
	if err != nil {
		p.unsure = append(p.unsure, ids...)
		slices.Sort(p.unsure)
		p.unsure = slices.Compact(p.unsure)
		return nil, err
	}
	p.unsure = nil
	return &riverdriver.JobGetAvailableResult{Jobs: jobs}, nil
}

// taken returns the unsure jobs that this server did take and does not work on yet.
func (p *fairPilot) taken(ctx context.Context, tx pgx.Tx, server string) ([]int64, error) {
	if len(p.unsure) == 0 {
		return nil, nil
	}
	return heldTx(ctx, tx, server, p.unsure)
}

// errNotFair reports that the library did not use our way to choose jobs. The server then does not start, because one
// house could otherwise occupy all workers.
var errNotFair = errors.New("the queue's library does not let us choose the next jobs")

// JobSetStateIfRunningMany changes the states of those jobs that this server holds, and leaves the others as they are.
// The library calls it for each result of a worker, but names jobs only by their ids. It expects that the result may lack
// some jobs, because jobs can be deleted.
func (p *fairPilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	tx, within := exec.(riverdriver.ExecutorTx)
	if !within {
		begun, err := exec.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer begun.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it does nothing after the commit, and otherwise the connection is closed
		tx = begun
	}
	var held, adopted []int64
	// The rows stay locked, so that no other server takes a job over in between, and nobody cancels one.
	err := tx.QueryRow(ctx, `
		select coalesce(array_agg(id), '{}'), coalesce(array_agg(id) filter (where state = 'running' and kind = any($3)), '{}') from (
		  select id, kind, state from `+db.JobSchema+`.river_job where id = any($1) and `+holder+` = $2 order by id for update) held`,
		params.ID, p.server.String(), p.adopted()).Scan(&held, &adopted)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	part := only(params, held)
	if left := leave(part, adopted); len(left) > 0 {
		// The library would end a job with its own mark. Ours tells the next server.
		err = tx.Exec(ctx, `
			update `+db.JobSchema+`.river_job set metadata = metadata - 'cancel_attempted_at' || '{"cancelled": true}'
			where id = any($1) and metadata ? 'cancel_attempted_at'`, left)
		if err != nil {
			return nil, err
		}
	}
	rows, err := p.StandardPilot.JobSetStateIfRunningMany(ctx, tx, part)
	if err == nil && !within {
		err = tx.Commit(ctx)
	}
	return rows, err
}

// adopted returns the kinds whose jobs the next server continues.
func (p *fairPilot) adopted() (kinds []string) {
	for name, k := range p.kinds {
		if k.adopted {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// leave returns those of the running jobs that this server leaves to the next one, and queues them even if they were
// cancelled. The library would end a cancelled job without a result. A worker that ends one writes the result, too, and
// the job then no longer counts as running.
func leave(params *riverdriver.JobSetStateIfRunningManyParams, running []int64) (left []int64) {
	for i, id := range params.ID {
		if !slices.Contains(running, id) {
			continue
		}
		switch params.State[i] {
		case rivertype.JobStateCancelled:
			params.State[i], params.ScheduledAt[i] = rivertype.JobStateAvailable, params.FinalizedAt[i]
			params.FinalizedAt[i], params.ErrData[i] = nil, nil
		case rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRetryable:
		default:
			continue
		}
		left = append(left, id)
	}
	return left
}

// only returns the part of params for some of its jobs.
func only(params *riverdriver.JobSetStateIfRunningManyParams, jobs []int64) *riverdriver.JobSetStateIfRunningManyParams {
	part := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !slices.Contains(jobs, id) {
			continue
		}
		part.ID = append(part.ID, id)
		part.Attempt = append(part.Attempt, params.Attempt[i])
		part.ErrData = append(part.ErrData, params.ErrData[i])
		part.FinalizedAt = append(part.FinalizedAt, params.FinalizedAt[i])
		part.MetadataDoMerge = append(part.MetadataDoMerge, params.MetadataDoMerge[i])
		part.MetadataUpdates = append(part.MetadataUpdates, params.MetadataUpdates[i])
		part.ScheduledAt = append(part.ScheduledAt, params.ScheduledAt[i])
		part.State = append(part.State, params.State[i])
	}
	return part
}
