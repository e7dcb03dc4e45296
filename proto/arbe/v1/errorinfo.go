package arbev1

import (
	"cmp"
	"errors"

	"connectrpc.com/connect"
)

// ErrorInfoOf returns the information of an error besides its code and message; never nil. It also reads the error's
// metadata, because an error that did not come from a service has no details.
func ErrorInfoOf(err error) *ErrorInfo {
	info := &ErrorInfo{}
	var e *connect.Error
	if !errors.As(err, &e) {
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
