package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/version"
)

// countJobsWithin limits the only query of a scrape, so that the other metrics come even if the database hangs.
const countJobsWithin = 2 * time.Second

// metrics are what a server counts about itself. No label has an id, a name or a text that a client chose. So the number
// of time series has a limit, and whoever reads them learns nothing about people.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_rpc_requests_total", Help: "Calls of the services that have ended, by procedure and code.",
		}, []string{"procedure", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "arbe_rpc_duration_seconds", Help: "How long calls took that do not stream, by procedure.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"procedure"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_http_requests_total", Help: "HTTP requests that have ended, by what they are for and status.",
		}, []string{"door", "status"}),
	}
	build := version.Get()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "arbe_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "go": build.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.calls, m.latency, m.requests, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// call counts a call of the services that has ended. The time of one that streams says nothing about the server, so only
// that of the others is measured.
func (m *metrics) call(spec connect.Spec, code string, took time.Duration) {
	procedure := strings.TrimPrefix(spec.Procedure, "/")
	m.calls.WithLabelValues(procedure, code).Inc()
	if spec.StreamType == connect.StreamTypeUnary {
		m.latency.WithLabelValues(procedure).Observe(took.Seconds())
	}
}

// request counts an HTTP request. Calls of the services are HTTP requests too.
func (m *metrics) request(r *http.Request, status int, _ time.Duration) {
	m.requests.WithLabelValues(doorOf(r), strconv.Itoa(status)).Inc()
}

// doorOf returns what a request is for, as one of a few fixed words, because each path as a label would be a time
// series of its own.
func doorOf(r *http.Request) string {
	path := r.URL.Path
	switch {
	case door.Serves(r):
		return "stream"
	case strings.HasPrefix(path, rpc.ArtifactPath):
		return "artifact"
	case path == "/healthz", path == "/readyz":
		return "health"
	case strings.HasPrefix(path, "/arbe.v1."), strings.HasPrefix(path, "/grpc."):
		return "rpc"
	}
	return "web"
}

// sources are the parts of the server that a scrape asks.
type sources struct {
	database   *db.DB
	log        *stream.Log
	pictures   *live.Pictures
	dispatcher *dispatch.Dispatcher
	drivers    map[string]sandbox.Driver
}

// collect adds metrics that each scrape reads from the parts of the server, which count them anyway.
func (m *metrics) collect(s sources) {
	count := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	m.registry.MustRegister(batches{s.log})
	count("arbe_log_entries_total", "Entries that were committed in batches.", func() float64 { return float64(s.log.Stats().Entries) })
	gauge("arbe_log_tails", "Tails that are open.", func() float64 { return float64(s.log.Stats().Tails) })
	gauge("arbe_live_pictures", "Houses that are watched through this server.", func() float64 { return float64(s.pictures.Len()) })
	gauge("arbe_commands_running", "Commands that this server works on.", func() float64 { return float64(s.dispatcher.Commands.Running()) })
	gauge("arbe_db_connections_max", "Most connections of the pool.", func() float64 { return float64(s.database.Stats().MaxConns()) })
	gauge("arbe_db_connections_acquired", "Connections of the pool that are in use.", func() float64 { return float64(s.database.Stats().AcquiredConns()) })
	gauge("arbe_db_connections_idle", "Connections of the pool that are idle.", func() float64 { return float64(s.database.Stats().IdleConns()) })
	count("arbe_db_acquires_waited_total", "Acquisitions of a connection that had to wait for one.", func() float64 { return float64(s.database.Stats().EmptyAcquireCount()) })
	count("arbe_db_acquire_seconds_total", "Time spent on acquiring connections.", func() float64 { return s.database.Stats().AcquireDuration().Seconds() })
	count("arbe_db_listener_reconnects_total", "Connections for notifications that broke and were replaced.", func() float64 { return float64(s.database.Reconnects()) })
	for name, driver := range s.drivers {
		if counts, ok := driver.(interface{ Running() int }); ok {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "arbe_sandboxes_running", Help: "Sandboxes of this server that run, by driver.", ConstLabels: prometheus.Labels{"driver": name},
			}, func() float64 { return float64(counts.Running()) }))
		}
	}
	m.registry.MustRegister(jobCounts{s.dispatcher})
}

// batches is the histogram of how many appends the committed batches held: under load they should grow, because each
// costs one commit.
type batches struct{ log *stream.Log }

var batchesDesc = prometheus.NewDesc("arbe_log_batch_appends", "Appends in each batch that was committed.", nil, nil)

// Describe and Collect make it a [prometheus.Collector].
func (batches) Describe(to chan<- *prometheus.Desc) { to <- batchesDesc }

// Collect reads the log's counts.
func (b batches) Collect(to chan<- prometheus.Metric) {
	stats := b.log.Stats()
	upTo := map[float64]uint64{}
	total := uint64(0)
	for i, n := range stats.Sizes {
		total += uint64(n)
		if i < len(stats.Sizes)-1 { // the last one has no upper bound
			upTo[float64(int(1)<<i)] = total
		}
	}
	to <- prometheus.MustNewConstHistogram(batchesDesc, total, float64(stats.Appends), upTo)
}

// jobs counts the jobs of all servers at each scrape.
type jobCounts struct{ dispatcher *dispatch.Dispatcher }

var jobsDesc = prometheus.NewDesc("arbe_jobs", "Jobs of all servers of the database, by kind and state: queued, running, retryable, failed.", []string{"kind", "state"}, nil)

// Describe and Collect make it a [prometheus.Collector].
func (jobCounts) Describe(to chan<- *prometheus.Desc) { to <- jobsDesc }

// Collect queries the database. If it does not answer, this metric alone is missing instead of all.
func (j jobCounts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countJobsWithin)
	defer cancel()
	counts, err := j.dispatcher.CountJobs(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(jobsDesc, err)
		return
	}
	for _, c := range counts {
		to <- prometheus.MustNewConstMetric(jobsDesc, prometheus.GaugeValue, float64(c.N), c.Kind, c.State)
	}
}

// serveMetrics serves metrics and health on an address of their own, if one is set. They need no credential, so that the
// operator's tools can read them; the operator decides who can reach the address.
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

// MetricsURL returns the address of the metrics; empty if [Config.MetricsAddr] is not set.
func (s *Server) MetricsURL() string { return s.metricsURL }
