package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/version"
)

// queryWithin limits each query of a scrape, so that the other metrics arrive even if the database hangs.
const queryWithin = 2 * time.Second

// metrics holds what a server counts about itself. No label has an id, a name or a text that a client chose. So the number of
// time series is limited, and readers learn nothing about people.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	requests *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	work     work
}

// work counts the server's work other than answering requests.
type work struct {
	turns, commands, sandboxes, models *prometheus.HistogramVec
	commandWaits                       prometheus.Histogram
	tokens                             *prometheus.CounterVec
	cost                               *prometheus.CounterVec
}

// The buckets of histograms, in seconds: for calls and answers, and for work.
var (
	callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	workBuckets = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_rpc_requests_total", Help: "Finished calls of the services, by procedure and code.",
		}, []string{"procedure", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "arbe_rpc_duration_seconds", Help: "Duration of calls that do not stream, by procedure.",
			Buckets: callBuckets,
		}, []string{"procedure"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_http_requests_total", Help: "Finished HTTP requests, by door and status.",
		}, []string{"door", "status"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "arbe_http_first_byte_seconds", Help: "Time until an answer began, by door. The answer to a long poll begins when there is something new.",
			Buckets: callBuckets,
		}, []string{"door"}),
		work: newWork(),
	}
	build := version.Get()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "arbe_build_info", Help: "Always 1; the labels name the build.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "go": build.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.calls, m.latency, m.requests, m.waits, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	w := m.work
	m.registry.MustRegister(w.turns, w.commands, w.commandWaits, w.sandboxes, w.models, w.tokens, w.cost)
	return m
}

func newWork() work {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: workBuckets}, labels)
	}
	return work{
		turns:     histogram("arbe_turn_seconds", "Time from the question to the end of turns of bots, by outcome.", "outcome"),
		commands:  histogram("arbe_command_seconds", "How long commands ran, by how they ended: ok, failed, timed_out, cancelled, not_run.", "outcome"),
		sandboxes: histogram("arbe_sandbox_build_seconds", "How long it took to create and prepare sandboxes, by driver and outcome: ok or failed.", "driver", "outcome"),
		models:    histogram("arbe_model_call_seconds", "How long calls of models took, by provider and outcome: ok, stopped, or the kind of error.", "provider", "outcome"),
		commandWaits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "arbe_command_wait_seconds", Help: "Time from the entry of a command until it ran: in the queue, and for its sandbox.", Buckets: workBuckets,
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_model_tokens_total", Help: "Tokens of calls of models, by provider and kind: input, output, cache_read, cache_write.",
		}, []string{"provider", "kind"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbe_model_cost_usd_total", Help: "Cost of calls of models, in US dollars, by provider. Models without a known price count nothing.",
		}, []string{"provider"}),
	}
}

func (w work) turn(outcome turn.Status, took time.Duration) {
	w.turns.WithLabelValues(string(outcome)).Observe(took.Seconds())
}

func (w work) command(ended entry.CommandResult, waited, ran time.Duration) {
	outcome := "ok"
	switch {
	case ended.Cancelled:
		outcome = "cancelled"
	case ended.TimedOut:
		outcome = "timed_out"
	case ended.SandboxID == "":
		outcome = "not_run"
	case ended.ExitCode != 0:
		outcome = "failed"
	}
	w.commands.WithLabelValues(outcome).Observe(ran.Seconds())
	w.commandWaits.Observe(waited.Seconds())
}

func (w work) sandbox(driver string, err error, took time.Duration) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	w.sandboxes.WithLabelValues(driver, outcome).Observe(took.Seconds())
}

func (w work) model(c model.Call) {
	provider := string(c.Provider)
	w.models.WithLabelValues(provider, c.Outcome).Observe(c.Took.Seconds())
	for kind, n := range map[string]int64{"input": c.Usage.Input, "output": c.Usage.Output, "cache_read": c.Usage.CacheRead, "cache_write": c.Usage.CacheWrite} {
		w.tokens.WithLabelValues(provider, kind).Add(float64(n))
	}
	w.cost.WithLabelValues(provider).Add(float64(c.Cost) / float64(model.Dollar))
}

// call counts a finished call of the services. It measures only calls that do not stream, because the duration of a stream
// says nothing about the server.
func (m *metrics) call(spec connect.Spec, code string, took time.Duration) {
	procedure := strings.TrimPrefix(spec.Procedure, "/")
	m.calls.WithLabelValues(procedure, code).Inc()
	if spec.StreamType == connect.StreamTypeUnary {
		m.latency.WithLabelValues(procedure).Observe(took.Seconds())
	}
}

// request counts an HTTP request whose answer began after waited. Calls of the services are HTTP requests too.
func (m *metrics) request(r *http.Request, status int, waited time.Duration) {
	door := doorOf(r)
	m.requests.WithLabelValues(door, strconv.Itoa(status)).Inc()
	if status != 0 {
		m.waits.WithLabelValues(door).Observe(waited.Seconds())
	}
}

// doorOf returns one of a few fixed words for the purpose of a request. If paths were labels, each path would be its own time
// series.
func doorOf(r *http.Request) string {
	path := r.URL.Path
	switch {
	case door.Serves(r):
		return "stream"
	case strings.HasPrefix(path, port.Path):
		return "port"
	case strings.HasPrefix(path, rpc.ArtifactPath):
		return "artifact"
	case path == "/healthz", path == "/readyz":
		return "health"
	case strings.HasPrefix(path, "/arbe.v1."), strings.HasPrefix(path, "/grpc."):
		return "rpc"
	case gateway.Serves(r):
		return "model"
	case gitdoor.Serves(r):
		return "git"
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
	dataDir    string
}

// collect adds metrics that each scrape reads from the parts of the server.
func (m *metrics) collect(s sources) {
	count := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	m.registry.MustRegister(batches{s.log})
	count("arbe_log_entries_total", "Entries that were committed in batches.", func() float64 { return float64(s.log.Stats().Entries) })
	gauge("arbe_log_tails", "Open tails.", func() float64 { return float64(s.log.Stats().Tails) })
	gauge("arbe_live_pictures", "Houses with watchers on this server.", func() float64 { return float64(s.pictures.Len()) })
	gauge("arbe_commands_running", "Commands that this server works on.", func() float64 { return float64(s.dispatcher.Commands.Running()) })
	gauge("arbe_db_connections_max", "Most connections of the pool.", func() float64 { return float64(s.database.Stats().MaxConns()) })
	gauge("arbe_db_connections_acquired", "Connections of the pool that are in use.", func() float64 { return float64(s.database.Stats().AcquiredConns()) })
	gauge("arbe_db_connections_idle", "Connections of the pool that are idle.", func() float64 { return float64(s.database.Stats().IdleConns()) })
	count("arbe_db_acquires_waited_total", "Acquisitions of a connection that had to wait for one.", func() float64 { return float64(s.database.Stats().EmptyAcquireCount()) })
	count("arbe_db_acquire_seconds_total", "Time spent on acquiring connections.", func() float64 { return s.database.Stats().AcquireDuration().Seconds() })
	count("arbe_db_listener_reconnects_total", "Connections for notifications that broke and were replaced.", func() float64 { return float64(s.database.Reconnects()) })
	gauge("arbe_spool_bytes", "Output of commands on the disk of this server that may become artifacts.", func() float64 { return float64(s.dispatcher.Commands.Spooled()) })
	gauge("arbe_disk_free_bytes", "Free space on the disk of the data directory.", func() float64 { return float64(freeSpace(s.dataDir)) })
	for name, driver := range s.drivers {
		if counts, ok := driver.(interface{ Running() int }); ok {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "arbe_sandboxes_running", Help: "Sandboxes of this server that run, by driver.", ConstLabels: prometheus.Labels{"driver": name},
			}, func() float64 { return float64(counts.Running()) }))
		}
	}
	m.registry.MustRegister(jobCounts{s.dispatcher}, &stored{database: s.database, dispatcher: s.dispatcher}, occupied{s.drivers})
}

// occupied measures the disk space that local sandboxes and cached environments use on this server's machine.
type occupied struct{ drivers map[string]sandbox.Driver }

var occupiedDesc = prometheus.NewDesc("arbe_sandbox_disk_bytes", "Disk space of sandboxes on this machine, by driver and kind: sandboxes, cached (environments).", []string{"driver", "kind"}, nil)

// Describe and Collect make it a [prometheus.Collector].
func (occupied) Describe(to chan<- *prometheus.Desc) { to <- occupiedDesc }

// Collect asks the drivers.
func (o occupied) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryWithin)
	defer cancel()
	for name, driver := range o.drivers {
		measured, ok := driver.(sandbox.Measured)
		if !ok {
			continue
		}
		houses, err := measured.Occupied(ctx)
		if err != nil {
			continue // the other metrics are still collected
		}
		var boxes, cached int64
		for _, h := range houses {
			cached += h.Layers
			for _, n := range h.Boxes {
				boxes += n
			}
		}
		to <- prometheus.MustNewConstMetric(occupiedDesc, prometheus.GaugeValue, float64(boxes), name, "sandboxes")
		to <- prometheus.MustNewConstMetric(occupiedDesc, prometheus.GaugeValue, float64(cached), name, "cached")
	}
}

// freeSpace returns the free bytes on the disk of a directory. It returns 0 if they are unknown, so that an alert about
// free space fires.
func freeSpace(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// batches is the histogram of the number of appends per committed batch. Under load they should grow, because each batch
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
		if i < len(stats.Sizes)-1 { // the last bucket has no upper bound
			upTo[float64(int(1)<<i)] = total
		}
	}
	to <- prometheus.MustNewConstHistogram(batchesDesc, total, float64(stats.Appends), upTo)
}

// jobs counts the jobs of all servers at each scrape.
type jobCounts struct{ dispatcher *dispatch.Dispatcher }

var jobAgeDesc = prometheus.NewDesc("arbe_job_oldest_seconds", "How long the oldest waiting job of a kind has been due.", []string{"kind"}, nil)

var jobsDesc = prometheus.NewDesc("arbe_jobs", "Jobs of all servers of the database, by kind and state: queued, running, retryable, failed.", []string{"kind", "state"}, nil)

// Describe and Collect make it a [prometheus.Collector].
func (jobCounts) Describe(to chan<- *prometheus.Desc) { to <- jobsDesc; to <- jobAgeDesc }

// Collect queries the database. If it does not answer, only these metrics are missing.
func (j jobCounts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryWithin)
	defer cancel()
	counts, err := j.dispatcher.CountJobs(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(jobsDesc, err)
		return
	}
	for _, c := range counts {
		to <- prometheus.MustNewConstMetric(jobsDesc, prometheus.GaugeValue, float64(c.N), c.Kind, c.State)
		if c.State == "queued" {
			to <- prometheus.MustNewConstMetric(jobAgeDesc, prometheus.GaugeValue, c.Oldest.Seconds(), c.Kind)
		}
	}
}

// measureStoredEvery is the maximum age of the stored sizes. Measuring them reads a row of each blob.
const measureStoredEvery = 5 * time.Minute

// stored measures the storage of all servers of the database.
type stored struct {
	database   *db.DB
	dispatcher *dispatch.Dispatcher

	mu                         sync.Mutex
	measured                   time.Time
	artifacts, all             float64
	logs, mostLogs, memberLogs float64
}

var (
	artifactBytesDesc  = prometheus.NewDesc("arbe_artifact_bytes", "Bytes of artifacts of all houses, each content of a house once. At most five minutes old.", nil, nil)
	logBytesDesc       = prometheus.NewDesc("arbe_log_bytes", "Bytes of entries of all logs in the database, compressed. At most five minutes old.", nil, nil)
	mostLogBytesDesc   = prometheus.NewDesc("arbe_log_bytes_of_largest_house", "Bytes of entries of the house with the most. Its quota is log_quota. At most five minutes old.", nil, nil)
	memberLogBytesDesc = prometheus.NewDesc("arbe_log_bytes_of_largest_member", "Bytes of entries of the person or bot that wrote the most in one house. The quota of members who are not owners is member_log_quota. At most five minutes old.", nil, nil)
	databaseBytesDesc  = prometheus.NewDesc("arbe_database_bytes", "Bytes of the database on its disk. At most five minutes old.", nil, nil)
)

// Describe and Collect make it a [prometheus.Collector].
func (*stored) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{artifactBytesDesc, databaseBytesDesc, logBytesDesc, mostLogBytesDesc, memberLogBytesDesc} {
		to <- d
	}
}

// Collect queries the database if the last answer is too old. If the database does not answer, only these metrics are missing.
func (s *stored) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.measured) > measureStoredEvery {
		ctx, cancel := context.WithTimeout(context.Background(), queryWithin)
		defer cancel()
		if err := s.database.Pool().QueryRow(ctx, "select artifact_bytes(), pg_database_size(current_database())").Scan(&s.artifacts, &s.all); err != nil {
			to <- prometheus.NewInvalidMetric(artifactBytesDesc, db.Explain(err))
			return
		}
		all, most, member, err := s.dispatcher.LogBytes(ctx)
		if err != nil {
			to <- prometheus.NewInvalidMetric(logBytesDesc, err)
			return
		}
		s.logs, s.mostLogs, s.memberLogs, s.measured = float64(all), float64(most), float64(member), time.Now()
	}
	to <- prometheus.MustNewConstMetric(artifactBytesDesc, prometheus.GaugeValue, s.artifacts)
	to <- prometheus.MustNewConstMetric(logBytesDesc, prometheus.GaugeValue, s.logs)
	to <- prometheus.MustNewConstMetric(mostLogBytesDesc, prometheus.GaugeValue, s.mostLogs)
	to <- prometheus.MustNewConstMetric(memberLogBytesDesc, prometheus.GaugeValue, s.memberLogs)
	to <- prometheus.MustNewConstMetric(databaseBytesDesc, prometheus.GaugeValue, s.all)
}
