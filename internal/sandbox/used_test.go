package sandbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// used returns a bench with a sandbox, and a function that returns when the sandbox was last used.
func used(t *testing.T) (b *bench, id string, at func() time.Time) {
	t.Helper()
	b = setup(t)
	th := b.thread(b.environment(sandbox.Recipe{}))
	b.sh(th, "true")
	id = b.on(th)
	return b, id, func() time.Time {
		t.Helper()
		tree, err := b.boxes.Tree(t.Context(), b.scope, id)
		if err != nil {
			t.Fatal(err)
		}
		return tree.UsedAt
	}
}

// A sweep that begins when a command has ended finds the sandbox unused.
func TestNothingIsRecordedAfterAUseHasEnded(t *testing.T) {
	t.Parallel()
	b, id, at := used(t)
	for range 100 {
		ended := b.boxes.KeepUsed(t.Context(), b.scope, id) // each millisecond
		first := at()
		for at().Equal(first) {
		}
		ended()
		last := at()
		for range 5 {
			if now := at(); !now.Equal(last) {
				t.Fatalf("%v after the use had ended, it counts as used", now.Sub(last))
			}
		}
	}
}

// What ran between two records is not saved by a save that was made before.
func TestAnOlderRecordOfAUseDoesNotReplaceANewerOne(t *testing.T) {
	t.Parallel()
	b, id, at := used(t)
	err := b.DB.In(t.Context(), b.scope, func(older pgx.Tx) error {
		if _, err := older.Exec(t.Context(), "select now()"); err != nil {
			return err
		}
		b.boxes.KeepUsed(t.Context(), b.scope, id)()
		newer := at()
		err := b.boxes.TouchTx(t.Context(), older, id)
		var now time.Time
		if err == nil {
			err = older.QueryRow(t.Context(), "select used_at from sandbox_trees where sandbox_id = $1", id).Scan(&now)
		}
		if now.Before(newer) {
			t.Errorf("it counts as used %v earlier than before", newer.Sub(now))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A save may begin while the use before it is still being recorded. What the use changes afterwards is not in the save.
func TestAUseThatASaveOvertakesIsRecordedAgain(t *testing.T) {
	t.Parallel()
	b, id, at := used(t)
	boxes := sandbox.NewResolver(sandbox.Config{DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Logger: slog.New(slog.DiscardHandler), SaveAfter: time.Hour})
	boxes.KeepUsed(t.Context(), b.scope, id)()
	boxes.SaveBegins(id)
	tx, err := b.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "select from sandbox_trees where sandbox_id = $1 for update", id); err != nil {
		t.Fatal(err)
	}
	began := make(chan func())
	go func() { began <- boxes.KeepUsed(t.Context(), b.scope, id) }()
	for waits := false; !waits; {
		if err := tx.QueryRow(t.Context(), "select exists (select from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database())").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	boxes.SaveBegins(id)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := <-began
	first := at()
	ended()
	if !at().After(first) {
		t.Error("its end was not recorded")
	}
}
