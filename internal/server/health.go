package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// pingWithin limits how long a readiness check waits for the database, because other requests wait for its result.
	pingWithin = 2 * time.Second
	// checkEvery is how long the result of a check is reused, because anyone may ask and must not be able to load the
	// database.
	checkEvery = time.Second
)

var errDraining = errors.New("the server is stopping")

// health answers the checks of a supervisor and of a load balancer. A server is live as long as it answers, even without its
// database, because a restart would not bring the database back. It is ready if its database answers and it is not stopping.
// A server serves only after its migrations, so they need no check.
type health struct {
	database *db.DB
	logger   *slog.Logger
	draining atomic.Bool

	// mu is held during a check, so that concurrent requests wait for its result and do not check too.
	mu      sync.Mutex
	checked time.Time
	err     error

	// degraded maps the parts that do not work, while everything else works, to the reasons.
	parts    sync.Mutex
	degraded map[string]string
	watched  []interface{ Short() error }
}

// watch makes health check a part for shortages from now on.
func (h *health) watch(part any) {
	if s, ok := part.(interface{ Short() error }); ok {
		h.parts.Lock()
		defer h.parts.Unlock()
		h.watched = append(h.watched, s)
	}
}

// degrade records that a part does not work, and why.
func (h *health) degrade(part, why string) {
	h.parts.Lock()
	defer h.parts.Unlock()
	h.degraded[part] = why
}

// restore records that a part works again.
func (h *health) restore(part string) {
	h.parts.Lock()
	defer h.parts.Unlock()
	delete(h.degraded, part)
}

// status returns "ok", or the parts that do not work.
func (h *health) status() string {
	h.parts.Lock()
	defer h.parts.Unlock()
	why := slices.Sorted(maps.Values(h.degraded))
	for _, part := range h.watched {
		if err := part.Short(); err != nil {
			why = append(why, "no sandbox can be created: "+fault.From(err).Message)
		}
	}
	if len(why) == 0 {
		return "ok"
	}
	return "degraded: " + strings.Join(why, "; ")
}

// routes adds the paths of both checks.
func (h *health) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, "ok", nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerHealth(w, h.status(), h.ready(r.Context())) })
}

// answerHealth answers with one line: the status of a usable server, or why it is unusable. A degraded server is usable: if
// a load balancer removed all servers because no new sandbox fits, everything that works would end, too.
func answerHealth(w http.ResponseWriter, line string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		line = err.Error()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, line+"\n") // fails only if the client has left, which will ask again
}

// ready returns an error that says why this server should get no requests, or nil. It logs the cause and does not return
// it, because the cause could help an attacker.
func (h *health) ready(ctx context.Context) error {
	if h.draining.Load() {
		return errDraining
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.checked.IsZero() && time.Since(h.checked) < checkEvery {
		return h.err
	}
	// Other requests use the result too, so the check must not end with the request that began it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingWithin)
	defer cancel()
	was := h.err
	h.err = nil
	if err := h.database.Ping(ctx); err != nil {
		h.err = errors.New("the database cannot be reached")
		if was == nil {
			h.logger.ErrorContext(ctx, "the server is not ready: the database cannot be reached", "error", fault.From(err).Detail())
		}
	} else if was != nil {
		h.logger.InfoContext(ctx, "the server is ready again")
	}
	h.checked = time.Now()
	return h.err
}
