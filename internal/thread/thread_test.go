package thread_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestCreateInsideATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("leaves neither row nor log when it fails later", func(t *testing.T) {
		failure := errors.New("later")
		var undone thread.Thread
		err := b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) (err error) {
			undone, err = b.threads.CreateTx(t.Context(), tx, b.scope, thread.Draft{ID: "undone00"})
			must(t, err)
			return failure
		})
		if err != failure {
			t.Error(err)
		}
		if _, err := b.threads.Get(t.Context(), b.scope, undone.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("the thread is there: %v", err)
		}
		ref := stream.Ref{House: b.scope.House, Name: undone.StreamID}
		if _, _, err := b.log.Read(t.Context(), ref, stream.Range{}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("the log is there: %v", err)
		}
	})
	t.Run("is what else is in it, at once", func(t *testing.T) {
		var made thread.Thread
		must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) (err error) {
			if made, err = b.threads.CreateTx(t.Context(), tx, b.scope, thread.Draft{Agent: b.bot}); err != nil {
				return err
			}
			return b.threads.SetStatusTx(t.Context(), tx, made.ID, thread.Running, "", "")
		}))
		if th, log := b.get(t, made.ID); th.Status != thread.Running || len(log) != 1 || th.Tail != 1 || !th.LastActivity.Equal(log[0].Time) {
			t.Errorf("it is %+v with %d entries", th, len(log))
		}
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sandbox := func(t *testing.T) (id string) {
		t.Helper()
		must(t, b.Owner(t).QueryRow(t.Context(), `
			with e as (insert into environments (house_id, name) values ($1, 'recipe') returning id)
			insert into sandboxes (house_id, environment_id, provider) select $1, id, 'local' from e returning id`, b.scope.House).Scan(&id))
		return id
	}
	on := func(t *testing.T, box string, d thread.Draft) thread.Thread {
		t.Helper()
		th := b.thread(t, d)
		_, err := b.Owner(t).Exec(t.Context(), "update threads set sandbox_id = $1 where id = $2", box, th.ID)
		must(t, err)
		return th
	}
	remove := func(t *testing.T, id string) (boxes []string) {
		t.Helper()
		must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) (err error) {
			boxes, err = b.threads.DeleteTx(t.Context(), tx, id)
			return err
		}))
		return boxes
	}

	t.Run("returns each sandbox that the thread and those below it were on, once", func(t *testing.T) {
		one, two, other := sandbox(t), sandbox(t), sandbox(t)
		root := on(t, one, thread.Draft{})
		child := on(t, one, thread.Draft{ParentThread: root.ID})
		on(t, two, thread.Draft{ParentThread: child.ID})
		on(t, other, thread.Draft{})
		want := []string{one, two}
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(remove(t, root.ID))); !slices.Equal(got, want) {
			t.Errorf("they are %q, want %q", got, want)
		}
	})
	t.Run("of what is gone does nothing", func(t *testing.T) {
		if got := remove(t, "nosuchthread"); len(got) != 0 {
			t.Errorf("it returns %q", got)
		}
	})
}
