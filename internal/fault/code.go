package fault

import "net/http"

// Code is the kind of a failure, for programs. Its text is Connect's name for the same code
// (https://connectrpc.com/docs/protocol/#error-codes), so that package rpc needs no table of its own.
type Code string

// The codes, and when to use each.
const (
	// Invalid: the request itself is wrong, whatever the state of the server.
	Invalid Code = "invalid_argument"
	// Unauthenticated: nobody is logged in, or the credential is unknown, used or expired.
	Unauthenticated Code = "unauthenticated"
	// Forbidden: the caller is known but may not do this.
	Forbidden Code = "permission_denied"
	// NotFound: the target does not exist or belongs to another house. Both look the same, so that nobody learns what
	// other houses have.
	NotFound Code = "not_found"
	// Exists: the object to create already exists and differs.
	Exists Code = "already_exists"
	// Precondition: the request is valid, but something else must be done first.
	Precondition Code = "failed_precondition"
	// Aborted: someone else changed the same object at the same time. Try again.
	Aborted Code = "aborted"
	// OutOfRange: the position is past the end of a log.
	OutOfRange Code = "out_of_range"
	// Exhausted: a limit is reached (size, rate, disk). The message names it.
	Exhausted Code = "resource_exhausted"
	// Unavailable: a required component cannot be reached now. A retry is harmless and may help.
	Unavailable Code = "unavailable"
	// Unimplemented: this build or driver does not support it.
	Unimplemented Code = "unimplemented"
	// Canceled: the caller went away.
	Canceled Code = "canceled"
	// DeadlineExceeded: the time limit was reached.
	DeadlineExceeded Code = "deadline_exceeded"
	// Internal: a defect in arbe.
	Internal Code = "internal"
)

// mappings maps each code to an HTTP status and to an exit code of the command line. Exit codes: 0 success, 1 any other
// failure, 2 usage, 3 not found, 4 not logged in, 5 not allowed, 6 conflict, 7 unavailable, 8 a limit. The command
// line's help repeats this list.
var mappings = map[Code]struct{ http, exit int }{
	Invalid:          {http.StatusBadRequest, 2},
	Unauthenticated:  {http.StatusUnauthorized, 4},
	Forbidden:        {http.StatusForbidden, 5},
	NotFound:         {http.StatusNotFound, 3},
	Exists:           {http.StatusConflict, 6},
	Precondition:     {http.StatusPreconditionFailed, 6},
	Aborted:          {http.StatusConflict, 6},
	OutOfRange:       {http.StatusRequestedRangeNotSatisfiable, 2},
	Exhausted:        {http.StatusTooManyRequests, 8},
	Unavailable:      {http.StatusServiceUnavailable, 7},
	Unimplemented:    {http.StatusNotImplemented, 1},
	Canceled:         {499, 1},
	DeadlineExceeded: {http.StatusGatewayTimeout, 7},
	Internal:         {http.StatusInternalServerError, 1},
}

// HTTPStatus returns the HTTP status for the code; 500 for an unknown code.
func (c Code) HTTPStatus() int {
	if e, ok := mappings[c]; ok {
		return e.http
	}
	return http.StatusInternalServerError
}

// ExitCode returns the exit code for the code; 1 for an unknown code.
func (c Code) ExitCode() int {
	if e, ok := mappings[c]; ok {
		return e.exit
	}
	return 1
}
