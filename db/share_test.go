package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestASlowHouseKeepsNobodyElseFromTheDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	slow, other := newHouse(t, d.Owner(t), "slow"), newHouse(t, d.Owner(t), "other")
	const conns = 4
	pool, err := db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	begun, end := make(chan struct{}, 3*conns), make(chan struct{})
	var all sync.WaitGroup
	for range 3 * conns {
		all.Go(func() {
			err := pool.In(t.Context(), slow.scope(), func(tx pgx.Tx) error {
				begun <- struct{}{}
				<-end
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range conns / 2 {
		<-begun
	}
	for _, scope := range []db.Scope{other.scope(), {}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := pool.In(ctx, scope, func(pgx.Tx) error { return nil }); err != nil {
			t.Errorf("while one house is slow, another one gets the error %v", err)
		}
		cancel()
	}
	select {
	case <-begun:
		t.Error("a house uses more than half of the connections")
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := pool.In(ctx, slow.scope(), func(pgx.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that waits too long for a connection of its house gets the error %v", err)
	}
	close(end)
	all.Wait() // those that waited have had their turn
}

func TestAHouseThatIsSlowForTooLongGetsAnError(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := newHouse(t, d.Owner(t), "slow")
	pool, err := db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: 2, TransactionTimeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = pool.In(t.Context(), h.scope(), func(pgx.Tx) error { close(begun); <-end; return nil }) // which lasts too long itself
	}()
	<-begun
	if err := pool.In(t.Context(), h.scope(), func(pgx.Tx) error { return nil }); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("it gets the error %v", err)
	}
	close(end)
	<-ended
}
