package server

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/logging"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// requestForm matches request ids that are accepted from clients. Other text could inject lines into a log.
var requestForm = lazyregexp.New(`^[A-Za-z0-9._:/+=-]{1,128}$`)

// identified gives each request an id, which is in all its log lines and in its answer. After each request it calls observe
// with the time until the answer began. It keeps an id from a proxy, or from the web app when that calls the services. So one
// id follows a request through all of them.
func identified(logger *slog.Logger, observe func(r *http.Request, status int, waited time.Duration), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(arbev1.RequestHeader)
		if !requestForm.MatchString(id) {
			id = rand.Text()[:16]
		}
		w.Header().Set(arbev1.RequestHeader, id)
		began := time.Now()
		ctx := logging.With(r.Context(), slog.String(logging.RequestKey, id))
		next.ServeHTTP(w, r.WithContext(ctx))
		status, answered := httpd.Begun(w)
		if observe != nil {
			observe(r, status, answered.Sub(began))
		}
		if logger.Enabled(ctx, slog.LevelDebug) {
			// Leave out the query, because it may contain the token of a login link.
			logger.DebugContext(ctx, "request", "method", r.Method, "path", r.URL.Path, "status", status, "took", time.Since(began))
		}
	})
}

// identifying sends requests on behalf of another request, and passes on its id, so that both have the same id in the log.
type identifying struct{ http.RoundTripper }

func (t identifying) RoundTrip(r *http.Request) (*http.Response, error) {
	if id := logging.Value(r.Context(), logging.RequestKey); id != "" {
		r = r.Clone(r.Context())
		r.Header.Set(arbev1.RequestHeader, id)
	}
	return t.RoundTripper.RoundTrip(r)
}
