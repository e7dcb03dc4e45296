package arbe

import (
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Next returns what the reader of a server's error can do about it, as a sentence without a full stop. It is empty if the
// server suggests nothing or was not reached.
func Next(err error) string { return arbev1.ErrorInfoOf(err).Next }

// Reason returns the name of what went wrong, for programs, such as THREAD_CLOSED. If the server knows nothing more exact, it is
// the name of the error's code, such as NOT_FOUND. It is empty if the server was not reached. docs/errors.md lists all reasons.
func Reason(err error) string { return arbev1.ErrorInfoOf(err).Reason }

// Reference returns the id of a failure in the server's log, for its operator. It is empty unless the error is
// internal, because the messages of other errors say what is wrong.
func Reference(err error) string { return arbev1.ErrorInfoOf(err).Reference }

// RequestID returns the id of the request that failed. Every line of the server's log about the request has it. It is empty if
// the server was not reached.
func RequestID(err error) string { return arbev1.ErrorInfoOf(err).RequestId }
