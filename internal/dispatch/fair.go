package dispatch

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The queues. Each has its own workers, so that no job waits for those of another queue.
const (
	// commands is the library's default queue, into which every version of this program has put commands.
	commands    = river.QueueDefault
	reaps       = "reaps"
	maintenance = "maintenance"
)

const (
	// commandWorkers is how many commands a server runs at once. It can be large, because a command mostly waits for
	// its sandbox.
	commandWorkers = 64
	// reapWorkers and maintenanceWorkers are how many of these jobs a server runs at once.
	reapWorkers, maintenanceWorkers = 8, 4
	// keptFree is the fraction of a queue's workers that is reserved for houses with nothing running, so that a few
	// houses with long jobs cannot occupy all.
	keptFree = 1. / 8
	// takeTimeout limits one search for jobs, because the other servers wait for its lock.
	takeTimeout = 10 * time.Second
	// fetchPause is the shortest time between two searches of a server in a queue. It is short, because it delays a
	// command that is requested right after another one.
	fetchPause = 10 * time.Millisecond
)

// Limits restrict the commands of each house and of each thread on all servers together.
type Limits struct {
	// HouseRunning and ThreadRunning are how many commands may run at once. They default to 16 and 8.
	HouseRunning, ThreadRunning int
	// HouseWaiting and ThreadWaiting are how many more may wait; further ones are refused. They default to 1,000 and
	// 200.
	HouseWaiting, ThreadWaiting int
}

// withDefaults replaces the zero fields.
func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{{&l.HouseRunning, 16}, {&l.ThreadRunning, 8}, {&l.HouseWaiting, 1000}, {&l.ThreadWaiting, 200}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return l
}

// fairDriver is the library's Postgres driver with another way to choose the next jobs.
type fairDriver struct {
	*riverpgxv5.Driver
	pilot *fairPilot
}

func (d *fairDriver) PluginInit(*baseservice.Archetype) {}
func (d *fairDriver) PluginPilot() riverpilot.Pilot     { return d.pilot }
func (d *fairDriver) chooses(c *river.Client[pgx.Tx]) bool {
	return c.Pilot() == riverpilot.Pilot(d.pilot)
}

// fairPilot chooses the next jobs fairly by house and thread, and changes only jobs that its server holds (held.go). It
// leaves everything else to the library.
type fairPilot struct {
	riverpilot.StandardPilot
	// server is the name under which this server takes jobs.
	server string
	db     *db.DB
	driver *riverpgxv5.Driver
	shares map[string]queue
	// machines are this server's own machines. Any server may run the jobs of a machine that was not seen for
	// machineGone.
	machines    []string
	machineGone time.Duration

	mu sync.Mutex
	// unsure are jobs that this server may have taken, because the database did not confirm the commit. Otherwise they
	// would count as running here, and nobody would run them.
	unsure []int64
}

// take selects the next jobs of a queue: at most @most jobs of the houses and threads that run the fewest. A job's
// place is the number of jobs of its house that would run with it. Houses take turns by that place, threads of a house
// likewise, and among equals the oldest job is first. Places beyond the limits wait. A job without a house or thread
// counts as one of its own. Jobs of other machines are left to those, unless they are gone.
const take = `
	with job as (
	  select id, state, coalesce(args->>'house', id::text) as house, coalesce(args->>'thread', id::text) as thread
	  from ` + db.JobSchema + `.river_job
	  where queue = @queue and (state = 'running' or state = 'available' and scheduled_at <= now() and (
	    metadata->>'machine' is null or metadata->>'machine' = any(@machines)
	    or exists (select from machines m where m.id = metadata->>'machine' and m.seen_at < now() - @machine_gone::interval)))
	), by_thread as (
	  select *, row_number() over (partition by house, thread order by state = 'available', id) as thread_place from job
	), by_house as (
	  select *, row_number() over (partition by house order by state = 'available', thread_place, id) as house_place from by_thread
	  where state = 'running' or thread_place <= @thread
	), waiting as (
	  select id, house_place, row_number() over (order by house_place, id) as place from by_house
	  where state = 'available' and house_place <= @house
	)
	update ` + db.JobSchema + `.river_job j
	set state = 'running', attempt = j.attempt + 1, attempted_at = now(),
	  attempted_by = array_append(j.attempted_by[greatest(1, coalesce(array_length(j.attempted_by, 1), 0) + 2 - @kept_names):], @server)
	from waiting w
	where j.id = w.id and j.state = 'available' and w.place <= @most and (w.place <= @most - @reserve or w.house_place = 1)
	returning j.id`

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
			if _, err = tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('arbe.queue'), hashtext($1))", params.Queue); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, take, pgx.NamedArgs{
				"queue": params.Queue, "server": params.ClientID, "house": s.house, "thread": s.thread, "most": params.MaxToLock - len(ids),
				"reserve": int(float64(s.workers) * keptFree), "kept_names": params.MaxAttemptedBy,
				"machines": p.machines, "machine_gone": p.machineGone,
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

// wakeTx makes all servers search a queue when tx commits. The library sends the same notification, but not shortly
// after another one: a job could then wait until the next poll.
func wakeTx(ctx context.Context, tx pgx.Tx, queue string) error {
	_, err := tx.Exec(ctx, "select pg_notify($1, $2)", db.JobSchema+".river_insert", fmt.Sprintf(`{"queue": %q}`, queue))
	return err
}

// load is the number of commands of a house, and of one of its threads, that have not ended.
type load struct {
	house, thread int
	// admitted are those commands of the house that the limits of their threads let run. A command does not wait for the
	// others, because they do not use the house's limit.
	admitted int
}

// lockCommandsTx locks the commands of a house until tx ends. A transaction that writes both a job and its thread's log
// must take this lock first, to avoid deadlocks.
func lockCommandsTx(ctx context.Context, tx pgx.Tx, house string) error {
	_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('arbe.commands'), hashtext($1))", house)
	return err
}

// loadTx counts the commands of a house. The caller holds lockCommandsTx, because commands that others queue meanwhile
// would not be counted.
func loadTx(ctx context.Context, tx pgx.Tx, house, thread string, limits Limits) (l load, err error) {
	err = tx.QueryRow(ctx, `
		select coalesce(sum(n), 0), coalesce(sum(n) filter (where thread = $3), 0), coalesce(sum(least(n, $4)), 0) from (
		  select args->>'thread' as thread, count(*) as n from `+db.JobSchema+`.river_job
		  where queue = $1 and state in ('available', 'running', 'scheduled', 'retryable') and args->>'house' = $2
		  group by 1) counted`, commands, house, thread, limits.ThreadRunning).Scan(&l.house, &l.thread, &l.admitted)
	return l, err
}

// refuses returns an error if one more command may not even wait.
func (l load) refuses(limits Limits) error {
	const next = "wait until some have ended, or cancel some"
	switch {
	case l.thread >= limits.ThreadRunning+limits.ThreadWaiting:
		return fault.Newf(fault.Exhausted, next, "%d commands of this thread have not ended, and no more may wait", l.thread)
	case l.house >= limits.HouseRunning+limits.HouseWaiting:
		return fault.Newf(fault.Exhausted, next, "%d commands of this house have not ended, and no more may wait", l.house)
	}
	return nil
}

// waits returns what one more command waits for. ok is false if it waits only for a server.
func (l load) waits(limits Limits) (w entry.CommandWaiting, ok bool) {
	switch {
	case l.thread >= limits.ThreadRunning:
		return entry.CommandWaiting{For: entry.WaitThread, Limit: limits.ThreadRunning}, true
	case l.admitted >= limits.HouseRunning:
		return entry.CommandWaiting{For: entry.WaitHouse, Limit: limits.HouseRunning}, true
	}
	return w, false
}

// errNotFair reports that the library did not use our way to choose jobs. The server then does not start, because one
// house could otherwise occupy all workers.
var errNotFair = errors.New("the queue's library does not let us choose the next jobs")
