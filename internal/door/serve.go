package door

import (
	"context"
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// operation answers a request. The caller answers its error.
type operation func(d *Door, w http.ResponseWriter, r request) error

// operations are the operations on a stream, by HTTP method.
var operations = map[string]struct {
	action auth.Action
	do     operation
}{
	http.MethodPut:    {auth.Write, (*Door).create},
	http.MethodPost:   {auth.Say, (*Door).write},
	http.MethodGet:    {auth.Read, (*Door).read},
	http.MethodHead:   {auth.Read, (*Door).head},
	http.MethodDelete: {auth.Write, (*Door).delete},
}

// ServeHTTP answers a request for a stream.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prepare(w.Header())
	if r.Method == http.MethodOptions {
		preflight(w.Header())
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := d.serve(w, r); err != nil {
		d.fail(w, r, err)
	}
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r.URL.EscapedPath())
	if err != nil {
		return err
	}
	// A read may last long, but authorizing it takes bounded time, like everything else.
	ctx, done := context.WithTimeout(r.Context(), maxDuration)
	defer done()
	bounded := r.WithContext(ctx)
	if strings.HasPrefix(name, reserved) {
		return d.control(w, bounded, name)
	}
	op, ok := operations[r.Method]
	if !ok {
		w.Header().Set("Allow", methods)
		return refusal{http.StatusMethodNotAllowed, fault.Newf(fault.Unimplemented, "use one of "+methods, "a stream does not support %.20s", r.Method)}
	}
	pass, err := d.Authorize(bounded, op.action, name)
	if err != nil {
		return err
	}
	if pass.While == nil {
		pass.While = context.WithCancel
	}
	_, thread := threadOf(name)
	req := request{bounded, stream.Ref{House: pass.House, Name: name}, pass.Agent, pass.who(), thread, pass.While, pass.MayRun, pass.Confined, pass.Run}
	if pass.Renewed != "" {
		w.Header().Set(headerToken, pass.Renewed)
	}
	// Without the time limit, because a read may follow the stream.
	if r.Method == http.MethodGet {
		req.Request = r
	}
	return op.do(d, w, req)
}

// fail answers a request with an error.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.From(err)
	if f.Code == fault.Internal {
		d.Logger.ErrorContext(r.Context(), "a request failed", "method", r.Method, "path", r.URL.Path, "reference", f.Reference, "error", f.Detail())
	}
	code := status(err, f)
	body := failure{Body: f.BodyFor(r)}
	protocolCode(&body, &code, err)
	refuse(w, r, code, body)
}

// refuse writes an error.
func refuse(w http.ResponseWriter, r *http.Request, code int, body failure) {
	h := w.Header()
	prepare(h)
	// Otherwise the error would have the tag of the content.
	h.Del("ETag")
	if body.Code == fault.Exhausted && code == http.StatusTooManyRequests {
		h.Set("Retry-After", "5")
	}
	fault.Answer(w, r, code, body.Code, body)
}
