package jobs

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

func TestAServerChangesOnlyJobsThatItHolds(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	j := open(t, d.DB, Config{})
	job := func(by ...string) (id int64) {
		err := d.Owner(t).QueryRow(t.Context(), `
			insert into `+db.JobSchema+`.river_job (queue, kind, args, max_attempts, state, attempt, attempted_at, attempted_by)
			values ('nobodys', 'none', '{}', 1, 'running', 1, now(), $1) returning id`, by).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for name, in := range map[string]func(set func(pgx.Tx) error) error{
		"by itself":        func(set func(pgx.Tx) error) error { return set(nil) },
		"in a transaction": func(set func(pgx.Tx) error) error { return d.DB.In(t.Context(), db.Scope{}, set) },
	} {
		t.Run(name, func(t *testing.T) {
			me := j.Server().String()
			mine, lost, again := job(me), job(me, "arbe-1"), job("arbe-1", me)
			var changed []int64
			err := in(func(tx pgx.Tx) (err error) {
				changed, err = j.setStates(t.Context(), tx, again, lost, mine)
				return err
			})
			if slices.Sort(changed); err != nil || !slices.Equal(changed, []int64{mine, again}) {
				t.Errorf("of %v it changed %v: %v", []int64{mine, lost, again}, changed, err)
			}
			for id, want := range map[int64]string{mine: "completed " + me, lost: "running arbe-1", again: "completed " + me} {
				if is := state(t, d, id); is != want {
					t.Errorf("the job is %s, want %s", is, want)
				}
			}
			err = in(func(tx pgx.Tx) (err error) {
				changed, err = j.setStates(t.Context(), tx, lost)
				return err
			})
			if err != nil || len(changed) != 0 {
				t.Errorf("it changed %v: %v", changed, err)
			}
		})
	}
}

func TestAServerLeavesTheJobsThatAnotherOneTookOver(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	j := open(t, d.DB, Config{Queues: []Queue{errands}})
	begun, left := make(chan int64, 1), make(chan error, 1)
	Add(j, Kind[errand]{Queue: errands.Name, Attempts: 1, Adopted: true, LeavesLost: true, Work: func(ctx context.Context, job *Job[errand]) error {
		begun <- job.ID
		<-ctx.Done()
		left <- context.Cause(ctx)
		return Left
	}})
	begin(t, j)
	queue(t, j, errand{House: "h"}, Options{})
	id := <-begun
	if _, err := d.Owner(t).Exec(t.Context(), "update "+db.JobSchema+".river_job set attempted_by = array_append(attempted_by, 'arbe-1') where id = $1", id); err != nil {
		t.Fatal(err)
	}
	// The server finds out once it has its lock again.
	if _, err := d.Owner(t).Exec(t.Context(), "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = ($1::bigint & 4294967295)::oid and classid = ($1::bigint >> 32)::oid", int64(j.Server())); err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-left:
		if cause != ErrTakenByOther {
			t.Errorf("its work ended because of %v", cause)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	if is := state(t, d, id); is != "running arbe-1" {
		t.Errorf("the job is %s", is)
	}
}
