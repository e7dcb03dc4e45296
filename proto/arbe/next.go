package arbe

import (
	"errors"

	"connectrpc.com/connect"
)

// Next is what the reader of an error of the server can do about it, as a sentence without its full
// stop; empty when the server gave none or was not reached.
func Next(err error) string { return meta(err, "Arbe-Next") }

// Reference names this very failure in the server's log, for its operator. Only internal errors have
// one; it is empty otherwise.
func Reference(err error) string { return meta(err, "Arbe-Reference") }

func meta(err error, key string) string {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e.Meta().Get(key)
	}
	return ""
}
