package stream

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// persist is how long a call tries again while the database drops its connections. A restart of Postgres
// leaves a pool full of dead ones, and every try finds out about one.
const persist = 5 * time.Second

// commitWithin is how long Postgres may take over a batch, which waits for no lock, and over a new connection:
// one whose other end is gone without a word would never answer.
const commitWithin = 10 * time.Second

// txn is what the queries of this package run on.
type txn = pgx.Tx

// in runs f in a transaction that sees ref's house, and explains its error. It runs f again after a passing
// failure, also when it is not known whether the first run was committed: f must be harmless to repeat.
func (l *Log) in(ctx context.Context, ref Ref, f func(tx txn) error) error {
	start := time.Now()
	var pause backoff
	for {
		err := l.db.In(ctx, db.Scope{House: ref.House}, f)
		if err == nil {
			return nil
		}
		if !passing(err) || time.Since(start) > persist || !pause.wait(ctx) {
			return explain(ref, err)
		}
	}
}

// explain turns what Postgres says about a log into what a person may read.
func explain(ref Ref, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return noStream(ref).Because(err)
	}
	switch db.State(err) {
	case "P0002": // this and the next two are raised by append_entries
		return noStream(ref).Because(err)
	case "55000":
		return fault.Newf(fault.Precondition, "write to another stream", "stream %s is closed", ref.Name).Because(err)
	case "42501":
		return fault.New(fault.Forbidden, "an author of these entries is not in this house",
			"add the agent to the house, or write in the name of a member").Because(err)
	case "22P02", "22P05", "22021": // malformed JSON or uuid, untranslatable character, invalid UTF-8
		return malformed().Because(err)
	}
	return db.Explain(err)
}

func malformed() *fault.Error {
	return fault.New(fault.Invalid, "an entry's author is not an agent's id, or its text is not JSON in valid UTF-8",
		"send the payload as UTF-8 JSON without NUL bytes, and the author as a uuid")
}

func noStream(ref Ref) *fault.Error {
	return fault.Newf(fault.NotFound, "check its name, and that its thread was not deleted", "there is no stream %s in this house", ref.Name)
}

// passing tells whether the same call may succeed a moment later.
func passing(err error) bool {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code == fault.Unavailable
	}
	return db.State(err) == "40001" || db.State(err) == "40P01" // serialization failure, deadlock victim
}

// detail is an error with its cause, for the server's log.
func detail(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Detail()
	}
	return err.Error()
}

// backoff is the pause between attempts: 5 ms, doubling up to a second. The zero value is ready.
type backoff struct{ next time.Duration }

// wait pauses; false means that ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, 5*time.Millisecond), time.Second)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
