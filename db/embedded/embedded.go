// Package embedded runs a PostgreSQL for arbe: the database of `arbe up` and of the tests.
//
// One call, [Start], takes a directory and returns a database that accepts connections. [Keep] also restarts it when it
// dies. The package hides everything in between: finding or fetching binaries (binaries.go, fetch.go), creating the
// cluster so that a crash leaves a complete one or none (cluster.go), what the directory stores (directory.go), running
// PostgreSQL so that it ends with us (process*.go), and ending processes left by a killed predecessor (leftovers.go).
//
// The rule to remember: the lock of the directory decides who owns the cluster. Its holder may end any PostgreSQL that
// still runs on the cluster; nobody else touches it.
//
// A directory contains `data` (the cluster), `password`, `port`, `postgres.log` and `lock`.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// readyTimeout limits a start whose context has no deadline. It is long because crash recovery of a busy cluster
	// takes time.
	readyTimeout = 60 * time.Second
	// portAttempts is how often a start chooses another port because someone took the last one.
	portAttempts = 5
)

// Server is a running PostgreSQL. Its methods may be called concurrently.
type Server struct {
	dir     *directory
	process *process
	url     string
	port    int
	logPath string
	log     *slog.Logger

	done chan struct{}

	mu       sync.Mutex
	stopping bool
	err      error
}

// Start starts the database in cfg.Dir and returns once it accepts connections. The first start creates the cluster.
// ctx limits the start (60 seconds for PostgreSQL to get ready if it has no deadline) but not the server's life,
// which ends with [Server.Stop], and at the latest with this process.
//
// After a crash of any kind (of this process, of PostgreSQL, of the machine) Start recovers by itself. It fails with
// [fault.Precondition] if another process already runs the directory, if the binaries do not fit the cluster, or if
// PostgreSQL may not run as the required user.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	dir, err := openDirectory(cfg.Dir)
	if err != nil {
		return nil, err
	}
	server, err := start(ctx, cfg, dir)
	if err != nil {
		dir.release()
		return nil, err
	}
	return server, nil
}

func start(ctx context.Context, cfg Config, dir *directory) (*Server, error) {
	if err := endLeftovers(ctx, dir, cfg.Log); err != nil {
		return nil, err
	}
	dir.discardHalves()
	major, err := dir.clusterMajor()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, cfg, major)
	if err != nil {
		return nil, err
	}
	who, err := accountFor(dir.cluster())
	if err != nil {
		return nil, err
	}
	if _, deadline := ctx.Deadline(); !deadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	if major == 0 {
		cfg.Log.Info("making a PostgreSQL cluster", "dir", dir.cluster(), "version", bin.version)
		if err := makeCluster(ctx, dir, bin, who, cfg.Fast); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		server, port, err := launch(ctx, cfg, dir, bin, who)
		if err == nil {
			cfg.Log.Info("PostgreSQL is ready", "version", bin.version, "port", port, "dir", dir.path)
			return server, nil
		}
		if attempt == portAttempts || cfg.port != 0 || portIsFree(port) || ctx.Err() != nil {
			return nil, err
		}
		cfg.Log.Info("the port was taken meanwhile, choosing another", "port", port)
	}
}

// launch runs PostgreSQL once, on a port that was free a moment ago, and waits until it is usable.
func launch(ctx context.Context, cfg Config, dir *directory, bin binaries, who account) (*Server, int, error) {
	port, err := cfg.port, error(nil)
	if port == 0 {
		port, err = dir.port()
	} else if !portIsFree(port) {
		err = fault.Newf(fault.Unavailable, "end the program that uses it", "port %d, which the database had until now, is taken", port)
	}
	if err != nil {
		return nil, 0, err
	}
	password, err := dir.password()
	if err != nil {
		return nil, 0, err
	}
	output, err := dir.openLog()
	if err != nil {
		return nil, 0, err
	}
	defer output.Close() // PostgreSQL has its own copy

	cluster, err := os.Open(dir.cluster())
	if err != nil {
		return nil, 0, dir.unusable(err)
	}
	defer cluster.Close()
	cmd := who.command(bin.path("postgres"), cluster, settings(port, cfg.Fast)...)
	cmd.Stdout, cmd.Stderr = output, output
	// A fast shutdown: orderly, but without waiting for clients, which end with us anyway.
	proc, err := spawn(cmd, syscall.SIGINT)
	if err != nil {
		return nil, 0, who.cannotRun(bin, err)
	}
	s := &Server{
		dir:     dir,
		process: proc,
		url:     connectionURL(port, password),
		port:    port,
		log:     cfg.Log,
		logPath: output.Name(),
		done:    make(chan struct{}),
	}
	if err := s.awaitReady(ctx, output.start); err != nil {
		s.process.cutOff()
		return nil, port, err
	}
	go s.watch()
	return s, port, nil
}

// settings returns the settings that PostgreSQL must run with. The operator controls all others with ALTER SYSTEM.
func settings(port int, fast bool) []string {
	args := []string{
		"-c", "listen_addresses=127.0.0.1",
		"-c", "port=" + strconv.Itoa(port),
		"-c", "unix_socket_directories=",
		// Otherwise the operator's ALTER SYSTEM could move the log to files that tailOf does not read.
		"-c", "logging_collector=off",
	}
	if fast {
		args = append(args,
			"-c", "max_connections=400",
			"-c", "fsync=off",
			"-c", "synchronous_commit=off",
			"-c", "full_page_writes=off",
			// With many databases, a worker would start every second or two and read the catalogs of one.
			"-c", "autovacuum=off",
		)
	}
	return args
}

func connectionURL(port int, password string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     fmt.Sprintf("127.0.0.1:%d", port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// URL returns the URL of the database "arbe" for the cluster's superuser, with the password. It stays the same from
// start to start, unless another program has taken the port in the meantime.
func (s *Server) URL() string { return s.url }

// Done returns a channel that is closed when PostgreSQL has ended. [Server.Err] then says whether it was stopped or
// died.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why PostgreSQL died. It is nil while PostgreSQL runs, and after [Server.Stop].
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stop shuts PostgreSQL down regularly, without waiting for its clients, and returns when it has ended and the
// directory is free for another start. If ctx ends first, PostgreSQL is killed, which loses nothing committed, and the
// error says so. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	_ = s.process.Signal(syscall.SIGINT) // an error means that it has ended
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-s.done: // both were ready
		return nil
	default:
	}
	s.process.cutOff()
	<-s.done
	return fault.New(fault.DeadlineExceeded, "PostgreSQL did not shut down in time and was killed",
		"nothing committed is lost: the next start recovers automatically").Because(ctx.Err())
}

// watch waits for the end of PostgreSQL and releases the directory.
func (s *Server) watch() {
	<-s.process.exited
	s.mu.Lock()
	if !s.stopping {
		s.err = fault.New(fault.Unavailable, "the embedded PostgreSQL died",
			"start again, which recovers everything committed; its log is "+s.logPath).Because(s.process.end())
	}
	s.mu.Unlock()
	// Released before done is closed, so that a waiter can start again.
	s.dir.release()
	close(s.done)
}

// awaitReady waits until PostgreSQL is ready, and creates the database if it is missing. logStart is where this run's
// output begins in the log.
func (s *Server) awaitReady(ctx context.Context, logStart int64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.dir.postmasterReady(s.process.Pid) {
		select {
		case <-s.process.exited:
			return fault.New(fault.Unavailable, "PostgreSQL did not start", "read the end of its log, "+s.logPath).
				Because(fmt.Errorf("%w; the end of its log:\n%s", s.process.end(), tailOf(s.logPath, logStart)))
		case <-ctx.Done():
			return s.notReady(ctx.Err())
		case <-tick.C:
		}
	}
	err := ensureDatabase(ctx, s.url)
	if err != nil && ctx.Err() != nil {
		return s.notReady(ctx.Err())
	}
	return err
}

func (s *Server) notReady(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return fault.From(cause)
	}
	return fault.New(fault.DeadlineExceeded, "PostgreSQL was not ready in time",
		"start again with more time; what it was doing is in its log, "+s.logPath).Because(cause)
}
