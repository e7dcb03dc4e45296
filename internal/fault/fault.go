// Package fault is arbe's one error vocabulary: what went wrong, what a person may see of it, and what
// to do next.
//
// Every error that reaches a person is a [*Error]: a [Code] for programs, a sentence for people, and a
// next step. Anything else that reaches a door is a defect of ours: [From] hides it behind [Internal]
// with a reference that the log explains. The maps from a code to Connect, to HTTP and to a process'
// exit code are methods of [Code], and exist nowhere else.
//
// The package imports nothing of ours and nothing outside the standard library, so that every other
// package may use it.
package fault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// Error is a failure that a person may read.
//
// It is immutable once made; [Error.Because] returns a copy.
type Error struct {
	// Code says what kind of failure it is.
	Code Code
	// Message says what went wrong, as a sentence without its full stop.
	Message string
	// Next says what the reader can do about it, as a sentence without its full stop.
	Next string
	// Reference identifies this very failure in the server's log. Only internal errors have one.
	Reference string

	cause error
}

// New makes an error of a code, with what went wrong and what to do next. Both are shown to people, so
// neither may hold a secret, another house's data, or a driver's raw error text.
func New(code Code, message, next string) *Error {
	return &Error{Code: code, Message: message, Next: next}
}

// Newf is [New] with a format for the message.
func Newf(code Code, next, format string, args ...any) *Error {
	return New(code, fmt.Sprintf(format, args...), next)
}

// Because returns a copy that wraps cause. The cause goes to the log and to [errors.Is], never to people.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Error is the message with its next step: "no thread x1; list the threads with arbe thread list".
// The cause, when there is one, is left out: see [Error.Detail].
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

// Detail is the error with its cause, for the server's log only.
func (e *Error) Detail() string {
	if e.cause == nil {
		return e.Error()
	}
	return e.Error() + ": " + e.cause.Error()
}

// Unwrap gives the cause to [errors.Is] and [errors.As].
func (e *Error) Unwrap() error { return e.cause }

// From turns any error into one that may be shown: itself when it is (or wraps) an [*Error]; cancelled
// or timed out when a context ended; otherwise [Internal] with a fresh reference, the original as its
// cause. From(nil) is nil.
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
	e := New(Internal, "something failed on our side", "try again, and give the operator the reference if it stays").Because(err)
	e.Reference = rand.Text()[:10]
	return e
}

// CodeOf is the code of the [*Error] that err is or wraps, and [Internal] for every other error.
// CodeOf(nil) is the empty code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}
