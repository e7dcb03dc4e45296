// Package server assembles arbe: it is the only package that knows all others, and the only one that
// names sandbox drivers. A [Server] is a value: `arbe up`, `arbe serve` and the tests run the same one.
package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/web"
)

// stopWithin bounds an orderly stop: work is ended, results are written, connections are closed.
const stopWithin = 20 * time.Second

// Server is one running arbe.
type Server struct {
	cfg    Config
	logger *slog.Logger
	url    string
	link   string
	failed chan error
	// stops are what to end, in the order it was started; stop runs them backwards.
	stops []func(context.Context) error
	once  sync.Once
	err   error
}

// Start brings a server up and returns once it serves. Without a DatabaseURL it brings its own Postgres.
// ctx bounds the start; the server goes on until [Server.Stop]. When Start fails, nothing stays running.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	level, err := cfg.level()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, failed: make(chan error, 4), logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// URL is where the server is reached.
func (s *Server) URL() string { return s.url }

// LoginLink logs a browser in as the first house's owner, once, within fifteen minutes.
func (s *Server) LoginLink() string { return s.link }

// Wait returns when ctx ends (nil) or a part the server cannot do without has died (why).
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Stop ends the server in order: no new requests, work under way told in the logs, then everything it
// started, its Postgres last. It may be called more than once.
func (s *Server) Stop() error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		for i := len(s.stops) - 1; i >= 0; i-- {
			s.err = errors.Join(s.err, s.stops[i](ctx))
		}
	})
	return s.err
}

// onStop notes how to end what was just started.
func (s *Server) onStop(f func(context.Context) error) { s.stops = append(s.stops, f) }

// start is the whole assembly, in the order things need each other.
func (s *Server) start(ctx context.Context) error {
	dir, err := openDirectory(s.cfg.DataDir)
	if err != nil {
		return err
	}
	s.onStop(func(context.Context) error { dir.close(); return nil })
	// The port comes before anything slow: a taken one is told at once.
	listener, err := s.listen()
	if err != nil {
		return err
	}
	s.onStop(func(context.Context) error { listener.Close(); return nil })

	ownerURL, err := s.postgres(ctx, dir)
	if err != nil {
		return err
	}
	sealer, err := dir.sealer(s.cfg.SecretKey)
	if err != nil {
		return err
	}
	serverURL, err := db.Migrate(ctx, ownerURL, sealer)
	if err != nil {
		return err
	}
	database, err := db.Open(ctx, serverURL, db.Options{})
	if err != nil {
		return err
	}
	s.onStop(func(context.Context) error { database.Close(); return nil })
	log, err := stream.Open(ctx, database, s.logger)
	if err != nil {
		return err
	}
	closeLog := sync.OnceFunc(log.Close)
	s.onStop(func(context.Context) error { closeLog(); return nil })

	drivers, unavailable := s.drivers(ctx, dir)
	threads := thread.New(database, log)
	boxes := sandbox.NewResolver(sandbox.Config{
		DB: database, Log: log, Threads: threads, Drivers: drivers, Unavailable: unavailable,
		RepoRoots: s.cfg.repoRoots(), Logger: s.logger,
	})
	boxes.Sweep(ctx)
	houses := house.New(database, log, threads, boxes)
	owner, err := firstOwner(ctx, ownerURL, houses)
	if err != nil {
		return err
	}
	who := auth.New(auth.Config{DB: database, Sealer: sealer})
	dispatcher, err := dispatch.Start(ctx, dispatch.Config{
		DB: database, Log: log, Threads: threads, Boxes: boxes, Logger: s.logger,
		Chores: []dispatch.Chore{{Name: "turn_signing_keys", Every: time.Hour, Do: who.TurnSigningKeys}},
	})
	if err != nil {
		return err
	}
	longPoll, err := s.cfg.longPoll()
	if err != nil {
		return err
	}
	services := rpc.Handler(rpc.Services{
		Auth: who, Houses: houses, Threads: threads, Log: log, Boxes: boxes, Dispatcher: dispatcher, Logger: s.logger,
	})
	subscriptions := subscription.Start(subscription.Config{
		DB: database, Log: log, Key: ed25519.NewKeyFromSeed(sealer.Derive("webhook signatures")), Logger: s.logger,
	})
	s.onStop(func(context.Context) error { subscriptions.Close(); return nil })
	streams := door.New(door.Config{
		Log: log, Authorize: door.Members(who), LongPoll: longPoll, Subscriptions: subscriptions, Logger: s.logger,
	})
	s.serve(listener, closeLog, database, services, streams)
	s.onStop(dispatcher.Stop) // before the doors close: who watches sees how their command ended
	return s.welcome(ctx, dir, who, owner)
}

// listen takes the address, and with it knows the server's URL.
func (s *Server) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return nil, fault.Newf(fault.Precondition, "stop what uses it, or set another with --addr or ARBE_ADDR",
			"cannot listen on %s", s.cfg.Addr).Because(err)
	}
	s.url = strings.TrimSuffix(s.cfg.PublicURL, "/")
	if s.url == "" {
		s.url = "http://" + listener.Addr().String()
	}
	return listener, nil
}

// postgres is the database to use, as its owner: the operator's, or our own.
func (s *Server) postgres(ctx context.Context, dir *directory) (ownerURL string, err error) {
	if s.cfg.DatabaseURL != "" {
		return s.cfg.DatabaseURL, nil
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: dir.join("postgres"), Binaries: s.cfg.PostgresBinaries, Log: s.logger})
	if err != nil {
		return "", err
	}
	s.onStop(func(ctx context.Context) error {
		os.Remove(dir.join(databaseURLFile))
		return server.Stop(ctx)
	})
	go func() {
		<-server.Done()
		if err := server.Err(); err != nil {
			s.failed <- err
		}
	}()
	return server.URL(), dir.write(databaseURLFile, []byte(server.URL()+"\n"))
}

// drivers are the sandbox drivers of this server: one line each. One that cannot work here does not stop
// the server; its sandboxes say why.
func (s *Server) drivers(ctx context.Context, dir *directory) (ready map[string]sandbox.Driver, unavailable map[string]error) {
	ready, unavailable = map[string]sandbox.Driver{}, map[string]error{}
	add := func(name string, d sandbox.Driver, err error) {
		if err != nil {
			s.logger.Warn("sandboxes of this kind cannot be used", "driver", name, "error", fault.From(err).Detail())
			unavailable[name] = err
			return
		}
		ready[name] = d
		s.onStop(d.Close)
	}
	box, err := s.local(ctx, dir)
	add("local", box, err)
	return ready, unavailable
}

// local is the driver of this machine, its runtime installed when that is possible.
func (s *Server) local(ctx context.Context, dir *directory) (sandbox.Driver, error) {
	if s.cfg.SandboxRuntime == "runc" {
		if err := local.Install(ctx); err != nil {
			return nil, err
		}
	}
	return local.New(ctx, local.Config{Dir: dir.join("local"), Runtime: s.cfg.SandboxRuntime, Log: s.logger})
}

// firstOwner is the owner of the oldest house. The first start of an installation makes both.
func firstOwner(ctx context.Context, ownerURL string, houses *house.Houses) (agent string, err error) {
	conn, err := db.ConnectOwner(ctx, ownerURL) // who asks for the first time is in no house yet
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.first'))"); err != nil {
		return "", db.Explain(err)
	}
	err = conn.QueryRow(ctx, `
		select m.agent_id::text from members m join houses h on h.id = m.house_id join agents a on a.id = m.agent_id
		where m.role = 'owner' and a.kind = 'human' order by h.created_at, m.joined_at limit 1`).Scan(&agent)
	if !errors.Is(err, pgx.ErrNoRows) {
		return agent, db.Explain(err)
	}
	if agent, err = houses.CreatePerson(ctx, personName()); err != nil {
		return "", err
	}
	_, err = houses.Create(ctx, agent, "Home")
	return agent, err
}

// personName is what to call the person who started the first server.
func personName() string {
	u, err := user.Current()
	if err != nil || u.Uid == "0" {
		return "Owner"
	}
	if name, _, _ := strings.Cut(u.Name, ","); strings.TrimSpace(name) != "" {
		return strings.TrimSpace(name)
	}
	return u.Username
}

// serve puts the doors on the port: the streams, the services, and the web app in front of those.
func (s *Server) serve(listener net.Listener, closeLog func(), database *db.DB, services http.Handler, streams *door.Door) {
	inside := newInProcess()
	insideServer := s.httpServer(services)
	go insideServer.Serve(inside)

	app := web.New(web.Config{HTTPClient: inside.client(), BaseURL: "http://services", Log: s.logger})
	mux := http.NewServeMux()
	guarded := http.NewCrossOriginProtection().Handler(services)
	for _, service := range rpc.Paths() {
		mux.Handle(service, guarded)
	}
	for _, prefix := range door.Prefixes {
		mux.Handle(prefix, streams)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := database.Pool().Ping(r.Context()); err != nil {
			http.Error(w, "the database cannot be reached", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("/", app)
	server := s.httpServer(mux)
	requests, endRequests := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return requests }
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fault.New(fault.Unavailable, "the server stopped listening", "start it again").Because(err)
		}
	}()
	s.onStop(func(ctx context.Context) error {
		// Nobody new comes in; those who watch a thread are let go by the log; the rest gets a moment to
		// end by itself, and another one to hear that it must.
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
		closeLog()
		<-done
		streams.Close(ctx)
		inside.Close()
		return insideServer.Close()
	})
}

// httpServer is a server with limits on what a client may take: long streams are allowed, slow headers
// and huge ones are not.
func (s *Server) httpServer(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC clients without TLS
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// welcome logs the command line of this machine in, and makes the link for the browser.
func (s *Server) welcome(ctx context.Context, dir *directory, who *auth.Auth, owner string) error {
	token, _, err := who.CreateLink(ctx, owner)
	if err != nil {
		return err
	}
	s.link = s.url + rpc.LoginPath(token)
	l := dir.readLogin()
	// A key that still works stays, so that programs that use it outlive a restart.
	if p, err := who.Authenticate(ctx, l.Token); err != nil || p.Agent != owner {
		host, _ := os.Hostname()
		if l.Token, err = who.ReplaceKey(ctx, owner, "command line on "+host+" in "+dir.path); err != nil {
			return err
		}
	}
	l.Host = s.url
	return dir.writeLogin(l)
}

// level is the least level that is logged.
func (c Config) level() (level slog.Level, err error) {
	if c.LogLevel == "" {
		return slog.LevelInfo, nil
	}
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fault.Newf(fault.Invalid, "use debug, info, warn or error", "log_level: there is no level %q", c.LogLevel)
	}
	return level, nil
}

// splitAddr takes an address apart.
func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fault.Newf(fault.Invalid, "write it as host:port, such as 127.0.0.1:8420", "addr: %q is not an address to serve on", addr)
	}
	return host, port, nil
}

// RotateSigningKeys makes a new key that signs threads' tokens, in the operator's database or in that of the
// server that runs on the data directory. dropOld ends the tokens of the old ones at once. Servers that run go
// on.
func RotateSigningKeys(ctx context.Context, cfg Config, dropOld bool) error {
	url := cfg.DatabaseURL
	if url == "" {
		url = LocalDatabaseURL(cfg.DataDir)
	}
	if url == "" {
		return fault.New(fault.Invalid, "no database is named, and no arbe up runs here", "set DATABASE_URL, or ARBE_DATA_DIR to the data directory of arbe up")
	}
	sealer, err := existingSealer(cfg.SecretKey, cfg.DataDir)
	if err != nil {
		return err
	}
	database, err := db.Open(ctx, url, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer database.Close()
	return auth.New(auth.Config{DB: database, Sealer: sealer}).RotateSigningKeys(ctx, dropOld)
}

// Migrate brings the operator's database up to this version's schema, without serving.
func Migrate(ctx context.Context, cfg Config) error {
	dir, err := openDirectory(cfg.DataDir)
	if err != nil {
		return err
	}
	defer dir.close()
	sealer, err := dir.sealer(cfg.SecretKey)
	if err != nil {
		return err
	}
	_, err = db.Migrate(ctx, cfg.DatabaseURL, sealer)
	return err
}
