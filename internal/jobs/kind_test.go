package jobs

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// checkedVersion is the version of river in whose code this package's assumptions were checked: that a client uses the
// pilot of its driver for each search and each end of a job, that Snooze(0) does nothing to a job that does not run,
// that it ends a cancelled job in two ways only: it reports it as cancelled, or it does not queue it again because of
// cancel_attempted_at, that workers may be added until the start, and that nobody else changes metadata.
const checkedVersion = "v0.51.0"

func TestTheVersionOfRiverIsTheOneThatWasChecked(t *testing.T) {
	t.Parallel()
	build, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information")
	}
	for _, module := range build.Deps {
		if module.Path == "github.com/riverqueue/river" && module.Version != checkedVersion {
			t.Errorf("river is %s: read what checkedVersion says in its code, and change checkedVersion", module.Version)
		}
	}
}

func TestAJobThatSomebodyCancels(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	j := open(t, d.DB, Config{Queues: []Queue{errands}})
	begun, ended := make(chan int64, 1), make(chan bool, 1)
	Add(j, Kind[errand]{Queue: errands.Name, Attempts: 1, Unique: true, Work: func(ctx context.Context, job *Job[errand]) error {
		begun <- job.ID
		<-ctx.Done()
		ended <- Cancelled(ctx) && !Stopped(ctx)
		return j.db.In(j.Results(), db.Scope{}, func(tx pgx.Tx) error {
			ctx, cancel := j.Lasting(ctx)
			defer cancel()
			return job.EndTx(ctx, tx)
		})
	}})
	begin(t, j)
	cancel := func(id int64) (ended bool) {
		err := d.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
			ended, err = j.CancelTx(t.Context(), tx, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	find := func() (found []Row) {
		err := d.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
			found, err = j.FindTx(t.Context(), tx, Filter{Kind: "errand", Args: map[string]string{"house": "h"}, Argument: "name", Prefix: "a", Most: 10})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("while a server works on it ends its work", func(t *testing.T) {
		if !queue(t, j, errand{House: "h", Name: "a1"}, Options{}) || queue(t, j, errand{House: "h", Name: "a1"}, Options{}) {
			t.Error("the second one is not the same job")
		}
		id := <-begun
		if found := find(); len(found) != 1 || !found[0].Running() || found[0].ID() != id {
			t.Errorf("found %v", found)
		}
		if cancel(id) || !<-ended {
			t.Error("its worker does not learn that somebody cancelled it")
		}
		comes(t, "it has ended", func() bool { return state(t, d, id) == "completed "+j.Server().String() })
	})
	t.Run("before a server works on it never begins", func(t *testing.T) {
		queue(t, j, errand{House: "h", Name: "a2"}, Options{Due: time.Now().Add(time.Hour)})
		found := find()
		if len(found) != 1 || found[0].Running() || !cancel(found[0].ID()) || len(find()) != 0 {
			t.Errorf("found %v", found)
		}
	})
}

// A job that its server hands over, or whose server dies, continues with its note, however often that happens.
func TestAJobGoesOnWithWhatWasNoted(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	type noted struct {
		Step int `json:"step"`
	}
	steps := make(chan int, 10)
	work := func(ctx context.Context, job *Job[errand]) error {
		var n noted
		if job.Note(&n); job.Continued() != (n.Step > 0) {
			return errors.New("the note and the history of the job differ")
		}
		steps <- n.Step
		if n.Step == 3 {
			return nil
		}
		if err := job.SetNote(ctx, noted{n.Step + 1}, nil); err != nil {
			return err
		}
		return job.HandOver(ctx, "")
	}
	for range 2 {
		j := open(t, d.DB, Config{Queues: []Queue{errands}})
		Add(j, Kind[errand]{Queue: errands.Name, Attempts: 1, Adopted: true, Work: work})
		begin(t, j)
		if j.Server() == 0 {
			t.Error("a server without a key")
		}
		queue(t, j, errand{House: "h", Name: j.Server().String()}, Options{})
	}
	seen := map[int]int{}
	for range 8 {
		select {
		case step := <-steps:
			seen[step]++
		case <-time.After(patience):
			t.Fatalf("it does not go on after %v", seen)
		}
	}
	for step := range 4 {
		if seen[step] != 2 {
			t.Errorf("the steps are %v, want each for both jobs", seen)
		}
	}
}

// The queue would end such a job, and nobody would write its result.
func TestAJobThatIsCancelledWhileItIsHandedOver(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	owner, soon := d.Owner(t), errands
	soon.Poll = 20 * time.Millisecond
	for name, c := range map[string]struct {
		adopted, later bool
		want           string
	}{
		"before its server hands it over goes on": {adopted: true, want: "completed"},
		"after its server handed it over goes on": {adopted: true, later: true, want: "completed"},
		"and is of a kind that is run again ends": {want: "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			j := open(t, d.DB, Config{Queues: []Queue{soon}})
			begun, next := make(chan int64, 1), make(chan bool, 1)
			Add(j, Kind[errand]{Queue: soon.Name, Attempts: 1, Adopted: c.adopted, Work: func(ctx context.Context, job *Job[errand]) error {
				if job.Continued() {
					next <- job.Cancelled() && !Cancelled(ctx)
					return nil
				}
				begun <- job.ID
				switch {
				case !c.adopted:
					<-ctx.Done()
					return ctx.Err()
				case !c.later:
					<-ctx.Done()
					return job.HandOver(ctx, "")
				}
				left := job.HandOver(ctx, "")
				_, err := owner.Exec(t.Context(), "update "+db.JobSchema+`.river_job set metadata = metadata || '{"cancel_attempted_at": "2026-11-28T12:00:00Z"}' where id = $1`, job.ID)
				return errors.Join(left, err)
			}})
			begin(t, j)
			queue(t, j, errand{House: "h", Name: name}, Options{})
			id := <-begun
			if !c.later {
				// Without our notice, so that the queue itself ends the context.
				err := d.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) error {
					_, err := j.river.JobCancelTx(t.Context(), tx, id)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var is string
			comes(t, "it ends", func() bool {
				is = state(t, d, id)
				return !strings.HasPrefix(is, "running") && !strings.HasPrefix(is, "available")
			})
			if is != c.want+" "+j.Server().String() {
				t.Fatalf("the job is %s, want %s", is, c.want)
			}
			if c.adopted && !<-next {
				t.Error("the next server does not learn that it was cancelled")
			}
		})
	}
}

func TestWorkWithoutAJobIsFoundAndRevived(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	j := open(t, d.DB, Config{Queues: []Queue{errands}})
	Add(j, Kind[errand]{Queue: errands.Name, Work: func(context.Context, *Job[errand]) error { return nil }})
	// The queue is not started, so that nothing runs.
	later := time.Now().Add(time.Hour)
	queue(t, j, errand{Name: "soon"}, Options{})
	queue(t, j, errand{Name: "late"}, Options{Due: later})
	queue(t, j, errand{Name: "patient"}, Options{Due: later})
	queue(t, j, errand{Name: "over"}, Options{})
	if _, err := d.Owner(t).Exec(t.Context(), "update "+db.JobSchema+".river_job set state = 'completed', finalized_at = now() where args->>'name' = 'over'"); err != nil {
		t.Fatal(err)
	}
	lost := func() (names []string) {
		err := d.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
			names, err = j.LostTx(t.Context(), tx, "errand", "name", []Wanted{{"soon", false}, {"late", false}, {"patient", true}, {"over", false}, {"none", false}}, time.Minute, 10)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := lost(); len(got) != 3 || got[0] != "late" || got[1] != "over" || got[2] != "none" {
		t.Errorf("lost are %v", got)
	}
	revive := func(name string) (found bool) {
		err := d.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
			found, err = j.ReviveTx(t.Context(), tx, "errand", "name", name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if !revive("late") || !revive("over") || revive("none") {
		t.Error("it did not revive those that have a job, and only those")
	}
	if got := lost(); len(got) != 1 || got[0] != "none" {
		t.Errorf("lost are %v after the revival", got)
	}
}

func TestAKindThatIsUnknownHereWaitsForAServerThatKnowsIt(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	j := open(t, d.DB, Config{LockGrace: 10 * time.Millisecond})
	begin(t, j)
	var id int64
	err := d.Owner(t).QueryRow(t.Context(), "insert into "+db.JobSchema+`.river_job (queue, kind, args, max_attempts, state, attempt, attempted_at, attempted_by)
		values ('elsewhere', 'of another version', '{}', 2, 'running', 1, now(), array['arbe-1']) returning id`).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is := state(t, d, id); is != "available arbe-1" {
		t.Errorf("the job of a dead server is %s", is)
	}
}
