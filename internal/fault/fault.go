// Package fault is arbe's error type: what went wrong, how much of it a person may see, and what to do next.
//
// Every error that reaches a person is a [*Error], with a [Code] for programs, a sentence for people and a next step.
// Any other error that reaches a door is a defect: [From] hides it behind [Internal] and a reference that identifies it
// in the log. The mappings from a code to Connect, to HTTP and to an exit code are methods of [Code] and exist nowhere
// else.
//
// The package imports only the standard library, so that every other package can use it.
package fault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// Error is a failure that a person may read. It is immutable; [Error.Because] and [Error.As] return copies.
type Error struct {
	// Code is the kind of the failure.
	Code Code
	// Message says what went wrong, as a sentence without a full stop.
	Message string
	// Next says what the reader can do about it, as a sentence without a full stop.
	Next string
	// Reference identifies this failure in the server's log. Only internal errors have one.
	Reference string

	reason Reason
	cause  error
}

// New returns an error with a code, what went wrong and what to do next. The texts must not contain a secret, another
// house's data or a driver's raw error text, because people see them.
func New(code Code, message, next string) *Error {
	return &Error{Code: code, Message: message, Next: next}
}

// Newf is [New] with a format for the message.
func Newf(code Code, next, format string, args ...any) *Error {
	return New(code, fmt.Sprintf(format, args...), next)
}

// Because returns a copy that wraps cause. The log and [errors.Is] see the cause; people never do, because its text may
// contain a secret.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Error returns the message with its next step: "no thread x1; list the threads with arbe thread list". It leaves out
// the cause, because its text may reach people; see [Error.Detail].
func (e *Error) Error() string {
	s := e.Message
	if e.Next != "" {
		s += "; " + e.Next
	}
	if e.Reference != "" {
		s += " (reference " + e.Reference + ")"
	}
	return s
}

// Detail returns the error with its cause, for the server's log only.
func (e *Error) Detail() string {
	if e.cause == nil {
		return e.Error()
	}
	return e.Error() + ": " + e.cause.Error()
}

// Unwrap returns the cause for [errors.Is] and [errors.As].
func (e *Error) Unwrap() error { return e.cause }

// WithReason returns a copy with this reason.
func (e *Error) WithReason(reason Reason) *Error {
	c := *e
	c.reason = reason
	return &c
}

// Reason returns the reason of the error: the one that [Error.WithReason] gave it, else the name of its code.
func (e *Error) Reason() Reason {
	if e.reason != "" {
		return e.reason
	}
	return Reason(strings.ToUpper(string(e.Code)))
}

// From turns any error into one that people may see: the [*Error] that err is or wraps; [Canceled] or
// [DeadlineExceeded] if a context ended; otherwise [Internal] with a new reference and err as its cause. From(nil) is
// nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return New(Canceled, "the request was cancelled", "send it again if you still want it").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(DeadlineExceeded, "the request took too long", "try again").Because(err)
	}
	e := New(Internal, "something went wrong on the server", "try again; if it happens again, give the operator the reference").Because(err)
	e.Reference = rand.Text()[:10]
	return e
}

// CodeOf returns the code of the [*Error] that err is or wraps, and [Internal] for any other error. CodeOf(nil) is the
// empty code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}
