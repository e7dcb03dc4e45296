package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// open opens another server on a database until the test ends.
func open(t *testing.T, d *db.DB, c Config) *Jobs {
	t.Helper()
	c.DB, c.Machines, c.MachineGone = d, func() []string { return nil }, time.Hour
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	j, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := j.Stop(ctx); err != nil {
			t.Errorf("stopping: %s", fault.From(err).Detail())
		}
	})
	return j
}

func begin(t *testing.T, j *Jobs) {
	t.Helper()
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

// errand is a kind of job that a test works on.
type errand struct {
	House  string `json:"house"`
	Thread string `json:"thread"`
	Name   string `json:"name"`
}

func (errand) Kind() string { return "errand" }

// errands is the queue of errands.
var errands = Queue{Name: "errands", Workers: 8, Limits: Limits{ThreadRunning: 8, HouseRunning: 8, PersonRunning: 8}, Poll: time.Second}

// queue queues a job, and reports whether it did.
func queue(t *testing.T, j *Jobs, args Args, o Options) (queued bool) {
	t.Helper()
	err := j.db.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
		queued, err = j.InsertTx(t.Context(), tx, args, o)
		return err
	})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return queued
}

// comes waits until a condition is true.
func comes(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

// state returns the state of a job, and the server that took it last.
func state(t *testing.T, d *dbtest.Database, id int64) (is string) {
	t.Helper()
	err := d.DB.Pool().QueryRow(t.Context(), "select state || ' ' || "+holder+" from "+db.JobSchema+".river_job where id = $1", id).Scan(&is)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// setStates reports to the queue, as its library does, that jobs have ended, and returns the jobs that it changed. With tx
// it does so within that transaction.
func (j *Jobs) setStates(ctx context.Context, tx pgx.Tx, jobs ...int64) (changed []int64, err error) {
	n := len(jobs)
	params := &riverdriver.JobSetStateIfRunningManyParams{
		ID: jobs, Attempt: make([]*int, n), ErrData: make([][]byte, n), FinalizedAt: make([]*time.Time, n), MetadataDoMerge: make([]bool, n),
		MetadataUpdates: make([][]byte, n), ScheduledAt: make([]*time.Time, n), Schema: db.JobSchema,
	}
	for i := range jobs {
		params.FinalizedAt[i] = new(time.Now())
		params.State = append(params.State, rivertype.JobStateCompleted)
	}
	var exec riverdriver.Executor = j.river.Driver().GetExecutor()
	if tx != nil {
		exec = j.river.Driver().UnwrapExecutor(tx)
	}
	rows, err := j.river.Pilot().JobSetStateIfRunningMany(ctx, exec, params)
	for _, r := range rows {
		changed = append(changed, r.ID)
	}
	return changed, err
}
