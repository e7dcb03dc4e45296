package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// pingWithin is how long the database has to answer a check of readiness.
	pingWithin = 2 * time.Second
	// checkEvery is how long the answer of a check holds: strangers may ask, and cost the database nothing.
	checkEvery = time.Second
)

// errDraining is why a server that stops is not ready.
var errDraining = errors.New("the server is stopping")

// health answers what a supervisor and a load balancer ask. A server is live as long as it answers: a restart would
// not bring a lost database back. It is ready when requests may be sent to it: its database answers, and it is not
// stopping. It serves only after its migrations, so they need no check.
type health struct {
	database *db.DB
	logger   *slog.Logger
	draining atomic.Bool

	// mu lets one request check, and the others wait for its answer.
	mu      sync.Mutex
	checked time.Time
	err     error
}

// routes adds the paths of both questions.
func (h *health) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerHealth(w, h.ready(r.Context())) })
}

// answerHealth answers one line: ok, or why not.
func answerHealth(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	line := "ok"
	if err != nil {
		line = err.Error()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, line+"\n") // who left asks again
}

// ready is why no requests should be sent to this server, or nil. It names no cause that a stranger could use: that is
// in the log.
func (h *health) ready(ctx context.Context) error {
	if h.draining.Load() {
		return errDraining
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.checked.IsZero() && time.Since(h.checked) < checkEvery {
		return h.err
	}
	// The answer is for everybody who asks, so it does not end with one request.
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
