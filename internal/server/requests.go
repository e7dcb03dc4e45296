package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/trace"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// requestForm matches request ids that are accepted from clients. Other text could inject lines into a log.
var requestForm = lazyregexp.New(`^[A-Za-z0-9._:/+=-]{1,128}$`)

// identified gives each request an id, which is in all its log lines and in its answer, and a span. After each request it
// calls observe with the time until the answer began. It keeps the id of a proxy, or of the web app when that calls the
// services, so that one id follows a request through all of them. inside reports that requests come from this process, whose
// traces they continue.
func identified(logger *slog.Logger, traces *trace.Tracer, inside bool, observe func(r *http.Request, status int, waited time.Duration), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(arbev1.RequestHeader)
		if !requestForm.MatchString(id) {
			id = rand.Text()[:16]
		}
		w.Header().Set(arbev1.RequestHeader, id)
		began := time.Now()
		ctx := logging.With(r.Context(), slog.String(logging.RequestKey, id))
		ctx, span := traces.Answer(ctx, trace.Parent(r.Header.Get(trace.Header)), inside, spanName(r))
		defer func() { endSpan(ctx, span, w) }()
		next.ServeHTTP(w, r.WithContext(ctx))
		status, answered := httpd.Begun(w)
		status = statusFor(ctx, status)
		if observe != nil {
			observe(r, status, answered.Sub(began))
		}
		if logger.Enabled(ctx, slog.LevelDebug) {
			// Leave out the query, because it may contain the token of a login link.
			logger.DebugContext(ctx, "request", "method", r.Method, "path", r.URL.Path, "status", status, "took", time.Since(began))
		}
	})
}

// spanName returns the initial name of a request's span: the method and the door. Paths are not in it, because clients
// choose them. The services replace it with the procedure.
func spanName(r *http.Request) string {
	if !slices.Contains(methods, r.Method) {
		return doorOf(r)
	}
	return r.Method + " " + doorOf(r)
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// statusLeft counts the requests whose client left before it got an error, as in nginx's logs.
const statusLeft = 499

// errStopping is the cause of the end of requests that a stopping server cuts off.
var errStopping = errors.New("the server is stopping")

// statusFor returns the status of an answer, or statusLeft if it is an error that the client caused by leaving.
func statusFor(ctx context.Context, status int) int {
	if status >= 500 && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStopping) {
		return statusLeft
	}
	return status
}

// endSpan ends the span of a request, with the attributes of its log lines.
func endSpan(ctx context.Context, span trace.Span, w http.ResponseWriter) {
	if !span.Recording() {
		return
	}
	status, _ := httpd.Begun(w)
	status = statusFor(ctx, status)
	span.Set(trace.Int("http.response.status_code", status))
	for _, key := range []string{logging.RequestKey, "house", "thread", "command"} {
		if value := logging.Value(ctx, key); value != "" {
			span.Set(trace.String("arbe."+key, value))
		}
	}
	if status >= http.StatusInternalServerError {
		span.Fail(strconv.Itoa(status))
	}
	span.End(nil)
}

// identifying sends requests on behalf of another request, and passes on its id and its span, so that both have the same id in
// the log and are one trace.
type identifying struct{ http.RoundTripper }

func (t identifying) RoundTrip(r *http.Request) (*http.Response, error) {
	id, from := logging.Value(r.Context(), logging.RequestKey), trace.Here(r.Context())
	if id != "" || from != "" {
		r = r.Clone(r.Context())
	}
	if id != "" {
		r.Header.Set(arbev1.RequestHeader, id)
	}
	if from != "" {
		r.Header.Set(trace.Header, string(from))
	}
	return t.RoundTripper.RoundTrip(r)
}
