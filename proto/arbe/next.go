package arbe

import (
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Next is what the reader of an error of the server can do about it, as a sentence without its full
// stop; empty when the server gave none or was not reached.
func Next(err error) string { return arbev1.ErrorInfoOf(err).Next }

// Reference names this very failure in the server's log, for its operator. Only internal errors have
// one; it is empty otherwise.
func Reference(err error) string { return arbev1.ErrorInfoOf(err).Reference }

// RequestID is the id of the request that failed, which is in every line of the server's log about it; empty when the
// server was not reached.
func RequestID(err error) string { return arbev1.ErrorInfoOf(err).RequestId }
