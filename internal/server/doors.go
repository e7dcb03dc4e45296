package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/web"
)

// serve serves all doors on the listener: the streams, the services, and the web app, which calls the services in-process.
func (s *Server) serve(listener net.Listener, closeWatches func(), of rpc.Services, streams *door.Door, models *gateway.Gateway, git *gitdoor.Door) {
	services := rpc.Handler(of)
	artifacts := rpc.ArtifactBytes(of)
	inside, insideMux := newInProcess(), http.NewServeMux()
	insideMux.Handle("/", services)
	insideMux.Handle(rpc.ArtifactPath, artifacts)
	insideServer := &http.Server{Handler: identified(s.logger, s.traces, true, nil, insideMux), ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug)}
	go insideServer.Serve(inside)

	app := web.New(web.Config{
		HTTPClient: inside.client(), BaseURL: "http://services", Log: s.logger, Secure: s.overHTTPS(), Previews: of.Ports.Previews,
		Provider: of.Login.Name(),
	})
	mux := http.NewServeMux()
	bodies := bodies{of.Auth.Request, httpd.NewMemory(256<<20, 64<<20)}
	guarded := http.NewCrossOriginProtection().Handler(bodies.bound(services, refuseCall))
	for _, service := range rpc.Paths() {
		mux.Handle(service, guarded)
	}
	mux.Handle(rpc.ArtifactPath, artifacts)
	mux.Handle(port.Path, of.Ports.Door())
	s.health.routes(mux)
	pages := bodies.bound(app, refuseForm)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if rpc.Serves(r) { // a service that does not exist
			guarded.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
	doors := doors{
		boxes: boxDoors{of.Auth.Authenticate, streams, models, git}, isPreview: func(r *http.Request) bool { _, ok := of.Ports.Serves(r); return ok },
		previews: of.Ports.Preview(), streams: streams, models: models, git: git, rest: mux,
	}
	server := httpd.New(identified(s.logger, s.traces, false, s.metrics.request, doors), s.limits, s.logger)
	server.ConnContext = markBox
	requests, cutRequests := context.WithCancelCause(context.Background())
	endRequests := func() { cutRequests(errStopping) }
	server.BaseContext = func(net.Listener) context.Context { return requests }
	// One HTTP server serves both listeners, so that the same limits on clients apply to both.
	for _, l := range []net.Listener{httpd.Listener(listener, maxConnections()), s.fromBoxes} {
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fault.New(fault.Unavailable, "the server stopped listening", "start it again").Because(err)
			}
		}()
	}
	s.onStop(func(ctx context.Context) error {
		// Accept no new requests. Closing the pictures and the log ends the requests of watchers. All other requests get half
		// a second to end. Then their contexts end, and finally their connections are closed.
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		defer endRequests()
		defer time.AfterFunc(500*time.Millisecond, endRequests).Stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if server.Shutdown(ctx) != nil {
				server.Close()
			}
		}()
		closeWatches()
		<-done
		streams.Close(ctx)
		inside.Close()
		return insideServer.Close()
	})
}

// doors routes each request to its door.
type doors struct {
	boxes     http.Handler
	isPreview func(*http.Request) bool
	previews  http.Handler
	streams   *door.Door
	models    *gateway.Gateway
	git       *gitdoor.Door
	rest      http.Handler
}

func (d doors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// By default, a browser runs nothing in an answer of any door. A door that needs more sets its own policy.
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, fromBox := boxOf(r.Context())
	// This check comes first, because the pages of a preview may ask for any path.
	if !fromBox && d.isPreview(r) {
		d.previews.ServeHTTP(w, r)
		return
	}
	// Git in a box needs no credential there, because the server knows the box. Over the network it has one of its own.
	forGit := gitdoor.Serves(r)
	if token, _ := credential(r); token == "" && !forGit { // the door for git reads the body of no stranger
		r.Body = http.MaxBytesReader(w, r.Body, maxStrangersBody)
	}
	switch {
	case fromBox:
		d.boxes.ServeHTTP(w, r)
	case forGit: // the mux would clean its path
		d.git.ServeToken(w, r, "")
	case door.Serves(r): // before the mux, which would redirect to a cleaned path and so change some streams' names
		d.streams.ServeHTTP(w, r)
	case gateway.Serves(r): // the mux must not clean the path of a model either
		d.models.ServeHTTP(w, r)
	default:
		d.rest.ServeHTTP(w, r)
	}
}

// serveMetrics serves metrics and health at a separate address, if one is set. They need no credential, so that the
// operator's tools can read them. The operator decides who can reach the address.
func (s *Server) serveMetrics() error {
	if s.cfg.MetricsAddr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", s.cfg.MetricsAddr)
	if err != nil {
		return fault.Newf(fault.Precondition, "stop what uses it, or set another with --metrics-addr or ARBE_METRICS_ADDR", "cannot listen on %s for metrics", s.cfg.MetricsAddr).Because(err)
	}
	s.metricsURL = localURL(listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4}))
	s.health.routes(mux)
	server := httpd.New(mux, httpd.Limits{}, s.logger)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fault.New(fault.Unavailable, "the server stopped listening for metrics", "start it again").Because(err)
		}
	}()
	s.onStop(func(context.Context) error { return server.Close() })
	return nil
}

// MetricsURL returns the address of the metrics, or "" if [Config.MetricsAddr] is not set.
func (s *Server) MetricsURL() string { return s.metricsURL }
