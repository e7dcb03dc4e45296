package arbev1

import (
	"cmp"
	"errors"

	"connectrpc.com/connect"
)

// ErrorInfoOf is what an error of a service says beside its code and message; never nil. Errors that are answered before
// a service is reached, and those of the paths that are no service, say it in metadata alone.
func ErrorInfoOf(err error) *ErrorInfo {
	info := &ErrorInfo{}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return info
	}
	for _, detail := range e.Details() {
		if value, err := detail.Value(); err == nil {
			if found, ok := value.(*ErrorInfo); ok {
				info = found
			}
		}
	}
	info.Next = cmp.Or(info.Next, e.Meta().Get(NextHeader))
	info.Reference = cmp.Or(info.Reference, e.Meta().Get(ReferenceHeader))
	info.RequestId = cmp.Or(info.RequestId, e.Meta().Get(RequestHeader))
	return info
}
