// Package server assembles arbe. It is the only package that knows all others, and the only one that names sandbox
// drivers. `arbe up`, `arbe serve` and the tests all run a [Server].
package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/user"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/trace"
	"github.com/arbe-dev/arbe/internal/turn"
)

// maxStrangersBody is the largest body of a request without a credential, in bytes. Such a request is a login or an invite,
// and needs no more.
const maxStrangersBody = 64 << 10

// maxConnections limits the connections of clients. A quarter of the files that the process may open is reserved for
// everything else. Otherwise clients could use up all files, and the server could not reach its database.
func maxConnections() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 1024 * 3 / 4
	}
	return int(min(files.Cur, 1<<20) * 3 / 4)
}

// stopWithin limits an orderly stop, in which work ends, results are written and connections are closed.
const stopWithin = 20 * time.Second

// Server is one running arbe.
type Server struct {
	cfg    Config
	limits httpd.Limits
	logger *slog.Logger
	// known holds the values of secrets that this process has seen, to redact them in its log.
	known *secret.Known
	// url is the server's address for browsers, and direct its address for programs on this machine. They can differ, because
	// browsers may come through a proxy.
	url, direct string
	createLink  func(context.Context) (string, error)
	failed      chan error
	health      *health
	metrics     *metrics
	// traces is nil if nothing is traced.
	traces     *trace.Tracer
	metricsURL string
	dispatcher *dispatch.Dispatcher
	// fromBoxes is the listener for connections from inside boxes.
	fromBoxes *inProcess
	// stops end the started parts, in the order of their start. Stop calls them in reverse, because later parts use earlier
	// ones.
	stops []func(context.Context) error
	once  sync.Once
	err   error
}

// URL returns the server's address for browsers.
func (s *Server) URL() string { return s.url }

// LoginLink creates a link that logs a browser in as the owner of the first house. It works once, within fifteen minutes.
func (s *Server) LoginLink(ctx context.Context) (string, error) { return s.createLink(ctx) }

// Wait returns nil when ctx ends, and an error when a part that the server needs has failed.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Drain prepares a server for [Server.Stop]. The server is no longer ready, and starts no more commands. Drain waits until
// the running commands have ended, [Config.DrainTimeout] has passed or ctx ends. Meanwhile the server still answers requests;
// the commands that they request wait for other servers or for the next start. Without a DatabaseURL, Drain does not wait,
// because such a server ends its commands when it is stopped.
func (s *Server) Drain(ctx context.Context) error {
	s.health.draining.Store(true)
	within := s.cfg.DrainTimeout
	if s.cfg.ownsDatabase() || within == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s.logger.InfoContext(ctx, "draining", "commands", s.dispatcher.Commands.Running(), "within", within.String())
	if err := s.dispatcher.Drain(ctx); err != nil {
		return err
	}
	if left := s.dispatcher.Commands.Running(); left > 0 {
		s.logger.InfoContext(ctx, "drain_timeout has passed: the next server continues the running commands", "commands", left)
	}
	return nil
}

// Stop ends the server in order: it accepts no new requests, records in the threads how work in progress ended, and then
// ends everything that it started, its Postgres last. It may be called more than once.
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

// onStop registers how to end a part that was just started.
func (s *Server) onStop(f func(context.Context) error) { s.stops = append(s.stops, f) }

// listen listens on the configured address and sets the server's URLs, which may depend on the port that was free.
func (s *Server) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return nil, fault.Newf(fault.Precondition, "stop what uses it, or set another with --addr or ARBE_ADDR",
			"cannot listen on %s", s.cfg.Addr).Because(err)
	}
	s.direct = localURL(listener.Addr())
	s.url = cmp.Or(strings.TrimSuffix(s.cfg.PublicURL, "/"), s.direct)
	return listener, nil
}

// localURL returns the URL at which programs on this machine reach a server that listens on addr. A server that listens on
// all addresses, even of IPv6, is reached at 127.0.0.1.
func localURL(addr net.Addr) string {
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: a.Port}
	}
	return "http://" + addr.String()
}

// previews returns the address below which previews have their hosts, or nil without previews. Browsers resolve all hosts
// below localhost to their own machine, without a name server.
func (s *Server) previews() *url.URL {
	if s.cfg.Previews != nil {
		return s.cfg.Previews
	}
	u, err := url.Parse(s.url)
	if err != nil || u.Scheme != "http" {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil
	}
	at := &url.URL{Scheme: "http", Host: "localhost"}
	if u.Port() != "" {
		at.Host += ":" + u.Port()
	}
	return at
}

// postgres returns the URL of the database, as the owner of its schema. It is the operator's database, or the embedded
// Postgres, which this method starts.
func (s *Server) postgres(ctx context.Context, dir *directory) (ownerURL string, err error) {
	if s.cfg.DatabaseURL != "" {
		return s.cfg.DatabaseURL, nil
	}
	if err := dir.checkEmbedded(); err != nil {
		return "", err
	}
	server, err := embedded.Keep(ctx, embedded.Config{Dir: dir.join(postgresDir), Binaries: s.cfg.PostgresBinaries, Log: s.logger})
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

// local returns the driver for sandboxes on this machine. It installs runc if runc is missing and can be installed, so that a
// first start needs no preparation.
func (s *Server) local(ctx context.Context, dir *directory, maxima sandbox.Maxima) (*local.Driver, error) {
	cfg := s.cfg.Local
	if cfg.Runtime == "runc" {
		if err := local.Install(ctx); err != nil {
			return nil, err
		}
	}
	cfg.Dir, cfg.Log, cfg.Door = dir.join("local"), s.logger, s.takeFromBox
	cfg.Limits = maxima.Bound(local.DefaultLimits) // the operator's maxima also apply to limits that a recipe does not set
	return local.New(ctx, cfg)
}

// startLocal starts the driver for sandboxes on this machine. [Server.stopDriver] stops it.
func (s *Server) startLocal(ctx context.Context, dir *directory, maxima sandbox.Maxima) (sandbox.Driver, error) {
	box, err := s.local(ctx, dir, maxima)
	if err != nil {
		return nil, err
	}
	return box, nil
}

// stopDriver stops a driver. Processes in its sandboxes continue, or end if the server owns its database. It ignores a nil
// driver.
func (s *Server) stopDriver(ctx context.Context, d sandbox.Driver) error {
	switch box, ok := d.(*local.Driver); {
	case d == nil: // it never started
		return nil
	case ok && s.cfg.ownsDatabase():
		return box.Halt(ctx)
	}
	return d.Close(ctx)
}

// firstOwner returns the owner of the oldest house. The first start of an installation creates both. firstOwner holds a lock,
// because several servers may start at once, and each would create its own house.
func firstOwner(ctx context.Context, ownerURL string, houses *house.Houses) (agent string, err error) {
	conn, err := db.ConnectOwner(ctx, ownerURL) // row-level security would hide all houses, because the server is not in any house
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
	if agent, err = houses.CreatePersonWith(ctx, personName(), func(pgx.Tx, string) error { return nil }); err != nil {
		return "", err
	}
	_, err = houses.Create(ctx, agent, "Home")
	return agent, err
}

// personName returns a name for the person who started the first server: their full name on this machine, else their user
// name, else Owner, as for root. Pages ask for the real name unless it is the full name.
func personName() house.Person {
	if u, err := user.Current(); err == nil && u.Uid != "0" {
		if name, _, _ := strings.Cut(u.Name, ","); strings.TrimSpace(name) != "" {
			return house.Person{Name: strings.TrimSpace(name)}
		}
		if u.Username != "" {
			return house.Person{Name: u.Username, Unnamed: true}
		}
	}
	return house.Person{Name: "Owner", Unnamed: true}
}

// overHTTPS reports whether browsers reach the server only over https.
func (s *Server) overHTTPS() bool { return strings.HasPrefix(strings.ToLower(s.url), "https://") }

// welcome logs in the command line of this machine, and sets createLink.
func (s *Server) welcome(ctx context.Context, dir *directory, who *auth.Auth, owner string) error {
	s.createLink = func(ctx context.Context) (string, error) {
		token, _, err := who.CreateLink(ctx, owner)
		return s.url + rpc.LoginPath(token), err
	}
	l := dir.readLogin()
	// Keep a key that is still valid, so that programs that use it keep working after a restart.
	if p, err := who.Authenticate(ctx, l.Token); err != nil || p.Agent != owner {
		host, _ := os.Hostname()
		if l.Token, err = who.ReplaceKey(ctx, owner, "command line on "+host+" in "+dir.path); err != nil {
			return err
		}
	}
	l.Host, l.URL = s.direct, s.url
	return dir.writeLogin(l)
}

// logFormat returns the format of the log on stderr.
func (c Config) logFormat() string {
	if c.LogFormat != "" {
		return c.LogFormat
	}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return logging.Text
	}
	return logging.JSON
}

// sealedDatabase returns the URL of the operator's database, or of the database of the server that runs on the data
// directory, as the owner of the schema. It also returns a sealer with the installation's key.
func (c Config) sealedDatabase() (url string, sealer *secret.Sealer, err error) {
	if url = cmp.Or(c.DatabaseURL, LocalDatabaseURL(c.DataDir)); url == "" {
		return "", nil, fault.New(fault.Invalid, "no database is named, and no arbe up runs here", "set DATABASE_URL, or set ARBE_DATA_DIR to the data directory of an arbe up that runs")
	}
	sealer, err = existingSealer(c.SecretKey, c.DataDir)
	return url, sealer, err
}

// RotateSecretKey reseals everything that is sealed under an older secret key with the first key of [Config.SecretKey], and
// returns how many values it changed. Servers that have both keys can keep running.
func RotateSecretKey(ctx context.Context, cfg Config) (changed int, err error) {
	url, sealer, err := cfg.sealedDatabase()
	if err != nil {
		return 0, err
	}
	conn, err := db.ConnectOwner(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return secret.Rewrap(ctx, conn, sealer)
}

// RotateSigningKeys creates a new key for signing thread tokens, in the operator's database or in the database of the server
// that runs on the data directory. With dropOld, tokens that older keys signed become invalid immediately. Running servers
// use the new key without a restart.
func RotateSigningKeys(ctx context.Context, cfg Config, dropOld bool) error {
	url, sealer, err := cfg.sealedDatabase()
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

// Migrate brings the operator's database up to this version's schema, without serving. It needs neither the data
// directory nor the secret key, and writes to no file.
func Migrate(ctx context.Context, cfg Config) error { return db.MigrateSchema(ctx, cfg.DatabaseURL) }

// migrate brings the directory's database up to this version's schema. It refuses another database before it changes anything
// in that database or in the directory.
func migrate(ctx context.Context, dir *directory, ownerURL, key string) (*secret.Sealer, string, error) {
	id, err := db.Installation(ctx, ownerURL)
	if err == nil {
		err = dir.checkDatabase(id)
	}
	if err != nil {
		return nil, "", err
	}
	sealer, err := dir.sealer(key)
	if err != nil {
		return nil, "", err
	}
	serverURL, err := db.Migrate(ctx, ownerURL, sealer)
	if err == nil {
		err = sealer.keep() // in case nothing had to be sealed yet
	}
	if err != nil {
		return nil, "", err
	}
	conn, err := db.ConnectOwner(ctx, ownerURL)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	seeded, err := secret.Seed(ctx, conn, sealer.Sealer, id == "")
	return seeded, serverURL, err
}

// starting is a server during its start, with its parts. Each part may need those above it.
type starting struct {
	*Server
	dir      *directory
	listener net.Listener

	ownerURL     string // the database, as the owner of the schema
	sealer       *secret.Sealer
	installation string
	database     *db.DB
	log          *stream.Log
	closeLog     func()
	threads      *thread.Threads

	providers *model.Client
	offered   *model.Installation
	secrets   *secret.Secrets
	drivers   map[string]sandbox.Driver
	boxes     *sandbox.Resolver
	bots      *bot.Bots
	houses    *house.Houses
	owner     string // the owner of the oldest house
	auth      *auth.Auth
	login     *oidc.Provider // nil without one
	models    *model.Houses
	artifacts *artifact.Artifacts
	turns     turn.Config

	inboxes  *inbox.Inboxes
	pusher   *push.Pusher
	pictures *live.Pictures
	// closeWatches ends the watches of clients.
	closeWatches func()
}

// takeFromBox takes over a connection from inside a box, once the server serves. The server treats it like a connection from
// the network, but [boxDoors] answers it.
func (s *Server) takeFromBox(conn net.Conn, from sandbox.Labels) {
	if s.fromBoxes.give(context.Background(), &boxConn{conn, from}) != nil {
		conn.Close()
	}
}
