package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
)

// Default is the name of the library's default queue.
const Default = river.QueueDefault

// maintenance is the queue of sweeps and periodic tasks.
const maintenance = "maintenance"

var maintenanceQueue = Queue{Name: maintenance, Workers: 4, Poll: 5 * time.Second}

// Queue is a queue with its own workers, so that no job waits for those of another queue.
type Queue struct {
	Name string
	// Workers is how many of its jobs a server runs at once.
	Workers int
	// Limits are how many of its jobs may run at once. The zero value takes jobs in the order of their arrival.
	Limits Limits
	// Poll is how often a server searches it without a notification, in case one is lost. Each search takes three round
	// trips.
	Poll time.Duration
}

// Limits restrict the jobs of one queue of each thread, of each house, and of all houses of each person, on all servers
// together. houses.belongs_to names the person to whom a house belongs: the first person to join among its owners. That is
// its creator, as long as the creator is an owner.
type Limits struct {
	// ThreadRunning, HouseRunning and PersonRunning limit how many run at once.
	ThreadRunning, HouseRunning, PersonRunning int
	// ThreadWaiting, HouseWaiting and PersonWaiting limit how many more wait. The code that queues the jobs enforces them.
	ThreadWaiting, HouseWaiting, PersonWaiting int
}

// Or returns l with the fields of other in place of those that are zero or less.
func (l Limits) Or(other Limits) Limits {
	or := func(a, b int) int {
		if a > 0 {
			return a
		}
		return b
	}
	return Limits{
		or(l.ThreadRunning, other.ThreadRunning), or(l.HouseRunning, other.HouseRunning), or(l.PersonRunning, other.PersonRunning),
		or(l.ThreadWaiting, other.ThreadWaiting), or(l.HouseWaiting, other.HouseWaiting), or(l.PersonWaiting, other.PersonWaiting),
	}
}

// Load is the number of jobs in a queue that have not ended: of a house, of one of its threads, and of all houses of
// its person.
type Load struct {
	Person, House, Thread int
	// Admitted is the number of the house's jobs that the limits of their threads allow to run. Jobs beyond those do not
	// count towards the house's limit, so no job waits for them.
	Admitted int
}

// LoadTx counts the jobs of a house in a queue. Jobs that others queue meanwhile are not counted, so the caller holds a
// lock if that matters.
func (q Queue) LoadTx(ctx context.Context, tx pgx.Tx, house, thread string) (l Load, err error) {
	err = tx.QueryRow(ctx, `
		select coalesce(sum(n), 0), coalesce(sum(n) filter (where house = $2), 0), coalesce(sum(n) filter (where house = $2 and thread = $3), 0),
		  coalesce(sum(least(n, $4)) filter (where house = $2), 0) from (
		  select args->>'house' as house, args->>'thread' as thread, count(*) as n from `+db.JobSchema+`.river_job
		  where queue = $1 and state in ('available', 'running', 'scheduled', 'retryable') and args->>'house' = any (array(select houses_beside($2)))
		  group by 1, 2) counted`, q.Name, house, thread, q.Limits.ThreadRunning).Scan(&l.Person, &l.House, &l.Thread, &l.Admitted)
	return l, err
}

// WakeTx makes all servers search a queue when tx commits. The library sends the same notification, but not shortly after
// another one: a job could then wait until the next poll.
func WakeTx(ctx context.Context, tx pgx.Tx, queue string) error {
	_, err := tx.Exec(ctx, "select pg_notify($1, $2)", db.JobSchema+".river_insert", fmt.Sprintf(`{"queue": %q}`, queue))
	return err
}

// Task is a task that one server runs regularly, and soon after the first server starts. The task itself checks whether
// there is anything to do.
type Task struct {
	Name  string
	Every time.Duration
	Do    func(context.Context) error
}
