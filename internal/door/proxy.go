package door

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Proxy forwards requests for streams to the server at upstream, for sandboxes whose network does not reach
// it (seed 001, egress and env). It is dumb on purpose: method, path, query, body and Authorization go on as
// they came, answers come back as they are written, and it holds no secret: who may do what is the server's
// to say. Every other path is not found.
func Proxy(upstream *url.URL, logger *slog.Logger) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			// Without one, the standard library would send its own.
			if _, said := r.Out.Header["User-Agent"]; !said {
				r.Out.Header.Set("User-Agent", "")
			}
		},
		FlushInterval: -1, // a live read is worth nothing late
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			logger.Warn("the server behind the proxy cannot be reached", "upstream", upstream.Host, "error", err)
			refuse(w, r, http.StatusBadGateway, failureOf(fault.New(fault.Unavailable, "the server behind this proxy cannot be reached",
				"try again in a moment; nothing that was acknowledged is lost")))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isStream := func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
		// Only what is the name of a stream: a path must not climb out of the prefix behind us.
		if _, err := streamName(r.URL.Path); err != nil || !slices.ContainsFunc(Prefixes, isStream) {
			refuse(w, r, http.StatusNotFound, failureOf(fault.New(fault.NotFound, "this proxy forwards streams only", "use a path under "+Prefixes[0])))
			return
		}
		forward.ServeHTTP(w, r)
	})
}
