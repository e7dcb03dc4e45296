package store

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Explain turns a Postgres error about a log into an error that a person can read.
func Explain(ref Ref, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return NoStream(ref).Because(err)
	}
	switch db.State(err) {
	case pgerrcode.NoDataFound: // append_entries raises this code and the next three
		return NoStream(ref).Because(err)
	case pgerrcode.ObjectNotInPrerequisiteState:
		return fault.Newf(fault.Precondition, "write to another stream", "stream %s is closed", ref.Name).WithReason(fault.StreamClosed).Because(err)
	case "AR002":
		return fault.New(fault.Precondition, "this thread is closed", "reopen it to write or run something in it").WithReason(fault.ThreadClosed).Because(err)
	case pgerrcode.InsufficientPrivilege:
		return fault.New(fault.Forbidden, "an author of these entries is not a member of this house",
			"add the agent to the house, or write in the name of a member").Because(err)
	case pgerrcode.InvalidTextRepresentation, // malformed JSON or uuid
		pgerrcode.UntranslatableCharacter, pgerrcode.CharacterNotInRepertoire:
		return Malformed().Because(err)
	}
	return db.Explain(err)
}

// IsTransient reports whether the same call may succeed a moment later.
func IsTransient(err error) bool {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code == fault.Unavailable
	}
	state := db.State(err)
	return state == pgerrcode.SerializationFailure || state == pgerrcode.DeadlockDetected
}

// ShutdownError returns the error of every call to a log whose context has ended, and nil before that.
func ShutdownError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "the server is stopping", "connect again in a moment").WithReason(fault.ServerStopping)
}

// NoStream returns the error for a name that no stream has.
func NoStream(ref Ref) *fault.Error {
	return fault.Newf(fault.NotFound, "check the name; the thread may have been deleted", "there is no stream %s in this house", ref.Name)
}

// Malformed returns the error for drafts that Postgres refuses.
func Malformed() *fault.Error {
	return fault.New(fault.Invalid, "an entry's author is not an agent's id, or its text is not JSON in valid UTF-8",
		"send the payload as UTF-8 JSON without NUL bytes, and the author as a uuid")
}

// PastEnd returns the error for a position after the last entry.
func PastEnd(after, tail int64) error {
	return fault.Newf(fault.OutOfRange, "start at a position you have read, or at 0",
		"position %d is past the end: the last entry is at %d", after, tail)
}

// Negative returns the error for a negative position or limit.
func Negative() error {
	return fault.New(fault.Invalid, "a position or a limit is negative", "use a position of 0, which is the start, or greater")
}
