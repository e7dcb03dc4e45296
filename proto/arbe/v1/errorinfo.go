package arbev1

import (
	"cmp"
	"errors"

	"connectrpc.com/connect"
)

// ErrorInfoOf returns what an error of a service says besides its code and message; never nil. It also reads the
// metadata, because errors from before a service is reached, and those of paths that belong to no service, have no
// details.
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
	info.Reason = cmp.Or(info.Reason, e.Meta().Get(ReasonHeader))
	info.Reference = cmp.Or(info.Reference, e.Meta().Get(ReferenceHeader))
	info.RequestId = cmp.Or(info.RequestId, e.Meta().Get(RequestHeader))
	return info
}
