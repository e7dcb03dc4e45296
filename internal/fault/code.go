package fault

import "net/http"

// Code is the kind of a failure, for programs. Its text is the name Connect gives the same code
// (https://connectrpc.com/docs/protocol/#error-codes), so the RPC edge needs no table of its own.
type Code string

// The codes, and when to use each.
const (
	// Invalid: the request itself is wrong, whatever the state of the world.
	Invalid Code = "invalid_argument"
	// Unauthenticated: nobody is logged in, or the credential is unknown, used or expired.
	Unauthenticated Code = "unauthenticated"
	// Forbidden: the caller is known and may not do this.
	Forbidden Code = "permission_denied"
	// NotFound: there is no such thing, or it is another house's (the two look the same on purpose).
	NotFound Code = "not_found"
	// Exists: the thing to be made is there already, and differs.
	Exists Code = "already_exists"
	// Precondition: the request is right, but something must be done first.
	Precondition Code = "failed_precondition"
	// Aborted: someone else changed the same thing at the same time; try again.
	Aborted Code = "aborted"
	// OutOfRange: a position past the end of a log.
	OutOfRange Code = "out_of_range"
	// Exhausted: a limit is reached (size, rate, disk); the message names it.
	Exhausted Code = "resource_exhausted"
	// Unavailable: a part that is needed is not reachable now; a retry is harmless and may help.
	Unavailable Code = "unavailable"
	// Unimplemented: this build or this driver cannot do it.
	Unimplemented Code = "unimplemented"
	// Canceled: the caller went away.
	Canceled Code = "canceled"
	// DeadlineExceeded: the time allowed ran out.
	DeadlineExceeded Code = "deadline_exceeded"
	// Internal: a defect of ours.
	Internal Code = "internal"
)

// edges holds what each code becomes outside: an HTTP status and a process' exit code.
// Exit codes: 0 ok, 1 anything else, 2 usage, 3 not found, 4 not logged in, 5 not allowed, 6 conflict,
// 7 unavailable, 8 a limit. The command line's help repeats this list.
var edges = map[Code]struct{ http, exit int }{
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

// HTTPStatus is the status an HTTP door answers with; 500 for a code it does not know.
func (c Code) HTTPStatus() int {
	if e, ok := edges[c]; ok {
		return e.http
	}
	return http.StatusInternalServerError
}

// ExitCode is what the command line exits with; 1 for a code it does not know.
func (c Code) ExitCode() int {
	if e, ok := edges[c]; ok {
		return e.exit
	}
	return 1
}
