package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Explain turns Postgres' errors into errors that tell a person what to do.
func TestExplain(t *testing.T) {
	t.Parallel()
	ref := store.Ref{House: "ho1", Name: "arbe-thread-th1"}
	for _, c := range []struct {
		name  string
		err   error
		code  fault.Code
		words string
	}{
		{"no row", pgx.ErrNoRows, fault.NotFound, "no stream arbe-thread-th1"},
		{"no stream", &pgconn.PgError{Code: "P0002"}, fault.NotFound, "no stream arbe-thread-th1"},
		{"a closed stream", &pgconn.PgError{Code: "55000"}, fault.Precondition, "stream arbe-thread-th1 is closed"},
		{"a closed thread", &pgconn.PgError{Code: "AR002"}, fault.Precondition, "this thread is closed"},
		{"an author of another house", &pgconn.PgError{Code: "42501"}, fault.Forbidden, "not a member"},
		{"an author that is not a uuid", &pgconn.PgError{Code: "22P02"}, fault.Invalid, "not JSON in valid UTF-8"},
		{"a NUL in a text", &pgconn.PgError{Code: "22P05"}, fault.Invalid, "not JSON in valid UTF-8"},
		{"bytes that are not UTF-8", &pgconn.PgError{Code: "22021"}, fault.Invalid, "not JSON in valid UTF-8"},
	} {
		got := store.Explain(ref, c.err)
		if fault.CodeOf(got) != c.code || !strings.Contains(got.Error(), c.words) || !errors.Is(got, c.err) {
			t.Errorf("%s: it is %v (%v), want %v with %q", c.name, got, fault.CodeOf(got), c.code, c.words)
		}
	}
}

// Only errors of calls that may succeed a moment later are transient.
func TestIsTransient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"a deadlock", &pgconn.PgError{Code: "40P01"}, true},
		{"transactions that exclude each other", &pgconn.PgError{Code: "40001"}, true},
		{"an unreachable database", fault.New(fault.Unavailable, "it is away", "wait"), true},
		{"a closed stream", &pgconn.PgError{Code: "55000"}, false},
		{"a caller's mistake", fault.New(fault.Invalid, "it is wrong", "correct it"), false},
		{"an unknown error", errors.New("unknown"), false},
	} {
		if got := store.IsTransient(c.err); got != c.want {
			t.Errorf("%s: it is %v", c.name, got)
		}
	}
}

// Pauses double from 5 ms up to a second, and end with their context.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b store.Backoff
		ctx, cancel := context.WithCancel(t.Context())
		for want := 5 * time.Millisecond; want < 5*time.Second; want *= 2 {
			began := time.Now()
			if !b.Wait(ctx) || time.Since(began) != min(want, time.Second) {
				t.Fatalf("it paused %v, want %v", time.Since(began), min(want, time.Second))
			}
		}
		cancel()
		if began := time.Now(); b.Wait(ctx) || time.Since(began) > 0 {
			t.Error("it paused although its context had ended")
		}
	})
}
