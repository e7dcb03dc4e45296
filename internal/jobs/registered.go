package jobs

import (
	"errors"
	"time"

	"github.com/riverqueue/river"
)

// This file has the part of a job's kind that does not depend on the type of its arguments.

// Args are the arguments of a job: a struct that JSON can hold. The arguments named house and thread say whose job it
// is.
type Args interface {
	// Kind returns the name of the job's kind. Names are stored, so a name must never be reused for another kind.
	Kind() string
}

var (
	// Left is the error that Work returns for a job that continues elsewhere or has already ended.
	Left error = river.JobSnooze(0) // does nothing to a job that has ended
	// ErrCancelled is the cause of the end of a job's context if somebody cancelled the job.
	ErrCancelled error = river.ErrJobCancelledRemotely
	// ErrTakenByOther reports that another server has taken the job over.
	ErrTakenByOther = errors.New("another server works on the job")
)

// registered is a kind with any type of arguments.
type registered struct {
	queue               string
	attempts            int
	unique              bool
	adopted, leavesLost bool
	working             working
}

// options returns how a job of the kind is queued.
func (k *registered) options() *river.InsertOpts {
	return &river.InsertOpts{Queue: k.queue, MaxAttempts: k.attempts, UniqueOpts: river.UniqueOpts{ByArgs: k.unique}}
}

func scheduled(o *river.InsertOpts, at time.Time) *river.InsertOpts {
	o.ScheduledAt = at
	return o
}
