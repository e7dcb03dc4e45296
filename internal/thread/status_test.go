package thread_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// steps lists every transition, as in the comment of Status.
var steps = map[thread.Status][]thread.Status{
	thread.Open:      {thread.Closed},
	thread.Closed:    {thread.Open},
	thread.Idle:      {thread.Running, thread.Failed, thread.Cancelled},
	thread.Running:   {thread.Completed, thread.Failed, thread.Cancelled},
	thread.Completed: {thread.Running},
	thread.Failed:    {thread.Running},
	thread.Cancelled: {thread.Running},
}

// ways leads a new thread to each status.
var ways = map[thread.Status][]thread.Status{
	thread.Open: nil, thread.Closed: {thread.Closed},
	thread.Idle: nil, thread.Running: {thread.Running},
	thread.Completed: {thread.Running, thread.Completed}, thread.Failed: {thread.Failed}, thread.Cancelled: {thread.Cancelled},
}

func TestStatusMachine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for from, way := range ways {
		for to := range steps {
			t.Run(string(from)+" to "+string(to), func(t *testing.T) {
				var d thread.Draft
				if from != thread.Open && from != thread.Closed {
					d.Agent = b.bot
				}
				id := b.thread(t, d).ID
				for _, s := range way {
					must(t, b.set(t, id, s))
				}
				err := b.set(t, id, to)
				th, log := b.get(t, id)
				switch {
				case from == to: // no change, no entry
					if err != nil || th.Status != from || len(log) != len(way) {
						t.Errorf("it is %s with %d entries: %v", th.Status, len(log), err)
					}
				case slices.Contains(steps[from], to):
					if err != nil || th.Status != to || len(log) != len(way)+1 {
						t.Fatalf("it is %s with %d entries: %v", th.Status, len(log), err)
					}
					told, _ := entry.As[entry.StatusChanged](log[len(way)])
					if want := (entry.StatusChanged{From: string(from), To: string(to), Reason: "because"}); told != want || log[len(way)].Author != b.bot {
						t.Errorf("the log tells %+v", log[len(way)])
					}
				default:
					if fault.CodeOf(err) != fault.Precondition || th.Status != from || len(log) != len(way) {
						t.Errorf("it is %s with %d entries: %v", th.Status, len(log), err)
					}
				}
			})
		}
	}
}

func TestStatusAndItsEntryAreOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unchanged := func(t *testing.T, id string) {
		t.Helper()
		if th, log := b.get(t, id); th.Status != thread.Idle || len(log) != 0 {
			t.Errorf("it is %s with %d entries", th.Status, len(log))
		}
	}

	t.Run("neither is there when the caller's transaction fails after them", func(t *testing.T) {
		th := b.thread(t, thread.Draft{Agent: b.bot})
		failure := errors.New("later")
		err := b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			must(t, b.threads.SetStatusTx(t.Context(), tx, th.ID, thread.Running, "", ""))
			return failure
		})
		if err != failure {
			t.Error(err)
		}
		unchanged(t, th.ID)
	})
	t.Run("neither is there when the entry cannot be written", func(t *testing.T) {
		th := b.thread(t, thread.Draft{Agent: b.bot})
		_, err := b.Owner(t).Exec(t.Context(), "update streams set closed_at = now() where name = $1", th.StreamID)
		must(t, err)
		if err := b.set(t, th.ID, thread.Running); fault.CodeOf(err) != fault.Precondition {
			t.Error(err)
		}
		unchanged(t, th.ID)
	})
	t.Run("neither is there in another house's eyes", func(t *testing.T) {
		th := b.thread(t, thread.Draft{Agent: b.bot})
		other := *b
		other.scope.House = "another"
		if err := other.set(t, th.ID, thread.Running); fault.CodeOf(err) != fault.NotFound {
			t.Error(err)
		}
		unchanged(t, th.ID)
	})
}
