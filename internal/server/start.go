package server

import (
	"context"
	"crypto/ed25519"
	"os"
	"strings"
	"sync"
	"time"

	"cmp"
	"log/slog"
	"net/http"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/trace"
	"github.com/arbe-dev/arbe/internal/version"
)

// start starts the parts of the server, each after those that it needs. Each part immediately registers how to end it, so
// that a failed start leaves nothing running.
func (s *Server) start(ctx context.Context) error {
	p := &starting{Server: s}
	s.metrics = newMetrics()
	for _, start := range []func(context.Context) error{
		p.openDirectory,
		p.startListening, // before anything slow, so that a port in use is reported immediately
		p.openDatabase,
		p.openTraces,
		p.openLog,
		p.openSecrets,
		p.openArtifacts,
		p.startSandboxes,
		p.openHouses,
		p.openPictures,
		p.openCredentials,
		p.openModels,
		p.startDispatcher,
		p.openDoors,
		p.startMetrics,
		p.welcomeOwner,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	build := version.Get()
	s.logger.InfoContext(ctx, "serving", "address", p.listener.Addr().String(), "version", build.Version, "revision", build.Revision, "go", build.Go)
	return nil
}

func (p *starting) openDirectory(context.Context) (err error) {
	if p.dir, err = openDirectory(p.cfg.DataDir); err == nil {
		p.onStop(func(context.Context) error { p.dir.close(); return nil })
	}
	return err
}

func (p *starting) startListening(context.Context) (err error) {
	if p.listener, err = p.listen(); err == nil {
		p.onStop(func(context.Context) error { p.listener.Close(); return nil })
	}
	return err
}

func (p *starting) openDatabase(ctx context.Context) (err error) {
	if p.ownerURL, err = p.postgres(ctx, p.dir); err != nil {
		return err
	}
	var serverURL string
	if p.sealer, serverURL, err = migrate(ctx, p.dir, p.ownerURL, p.cfg.SecretKey); err != nil {
		return err
	}
	if p.installation, err = db.Installation(ctx, p.ownerURL); err != nil {
		return err
	}
	if err = p.dir.setDatabase(p.installation); err != nil {
		return err
	}
	if p.database, err = db.Open(ctx, serverURL, db.Options{}); err != nil {
		return err
	}
	p.onStop(func(context.Context) error { p.database.Close(); return nil })
	p.health = &health{database: p.database, logger: p.logger, degraded: map[string]string{}}
	return nil
}

// openTraces comes first, so that the tracer stops last and sends the spans of everything that stops before it.
func (p *starting) openTraces(ctx context.Context) (err error) {
	host, _ := os.Hostname()
	p.traces, err = trace.Open(ctx, trace.Config{
		URL: p.cfg.TracesURL, Version: version.Get().Version, Installation: p.installation, Server: host + " " + p.dir.path, Logger: p.logger,
	})
	if err == nil {
		p.onStop(p.traces.Close)
	}
	return err
}

func (p *starting) openLog(ctx context.Context) (err error) {
	if p.log, err = stream.Open(ctx, p.database, p.logger); err != nil {
		return err
	}
	p.closeLog = sync.OnceFunc(p.log.Close)
	p.onStop(func(context.Context) error { p.closeLog(); return nil })
	p.threads = thread.New(p.database, p.log)
	return nil
}

func (p *starting) openSecrets(context.Context) error {
	for _, name := range model.KeyVariables {
		p.known.Add([]byte(strings.TrimSpace(os.Getenv(name))))
	}
	p.providers = &model.Client{Observe: p.metrics.work.model}
	p.offered = model.NewInstallation(os.Getenv, p.providers.Models)
	p.secrets = secret.New(p.database, p.sealer, secret.EachUse(p.offered.SecretUses, sandbox.AccountUses(houseAccounts(&p.cfg))), p.known)
	return nil
}

func (p *starting) openArtifacts(ctx context.Context) (err error) {
	p.artifacts, err = p.storeArtifacts(ctx, p.dir, p.database)
	return err
}

func (p *starting) startSandboxes(ctx context.Context) error {
	maxima := p.cfg.maxima()
	starts := p.allDrivers(maxima)
	unavailable := map[string]error{}
	p.drivers = map[string]sandbox.Driver{}
	for _, d := range starts {
		d.first(ctx, p.drivers, unavailable)
	}
	want := func(name string) {
		for _, d := range starts {
			if d.name == name {
				d.want()
			}
		}
	}
	p.boxes = sandbox.NewResolver(sandbox.Config{
		DB: p.database, Log: p.log, Threads: p.threads, Drivers: p.drivers, Unavailable: unavailable, Accounts: p.relayingAccounts(),
		RepoRoots: p.cfg.RepoRoots, Installation: p.installation, MachineGone: p.cfg.MachineGone, Maxima: maxima,
		Secrets: p.secrets, Logger: p.logger, Wanted: want, Door: strings.TrimSuffix(p.cfg.PublicURL, "/"), GitToken: p.gitTokens().Make,
		Artifacts: p.artifacts, SaveAfter: p.cfg.SaveAfter, Observe: p.metrics.work.sandbox,
	})
	p.onStop(p.boxes.CloseAccounts)
	p.boxes.Sweep(ctx)
	for _, d := range starts {
		d.keepTrying(p.boxes)
	}
	return nil
}

// allDrivers returns the starts of all drivers.
func (p *starting) allDrivers(maxima sandbox.Maxima) []*driverStarts {
	starts := []*driverStarts{p.driverStarts(localDriver, func(ctx context.Context) (sandbox.Driver, error) {
		return p.startLocal(ctx, p.dir, maxima)
	})}
	for _, provider := range providers {
		starts = append(starts, p.driverStarts(provider.name, func(context.Context) (sandbox.Driver, error) { return p.relaying(provider.open(&p.cfg)) }))
		starts[len(starts)-1].rented = true
	}
	return starts
}

func (p *starting) openHouses(ctx context.Context) (err error) {
	p.bots = bot.New(p.database, p.threads)
	p.bots.Maxima = p.cfg.BotMaxima.OrMaxima()
	p.houses = house.New(p.database, p.log, p.threads, p.boxes.Environments, p.bots)
	p.houses.Creation, p.houses.PerPerson = p.cfg.HouseCreation, p.cfg.HousesPerPerson
	p.houses.Maxima = p.cfg.HouseMaxima.OrMaxima()
	p.inboxes = inbox.New(p.database)
	if p.pusher, err = p.openPusher(); err != nil {
		return err
	}
	p.owner, err = firstOwner(ctx, p.ownerURL, p.houses)
	return err
}

func (p *starting) openPusher() (*push.Pusher, error) {
	o := p.cfg.Push
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Mail.Server != nil {
		password, _ := o.Mail.Server.User.Password()
		p.known.Add([]byte(password))
	}
	return push.New(push.Config{
		DB: p.database, Inboxes: p.inboxes, DeviceKey: p.sealer.Derive("push devices"), VAPIDSeed: p.sealer.Derive("push"),
		URL: strings.TrimSuffix(p.url, "/"), PrivateHosts: o.PrivateHosts, Mail: o.Mail, Logger: p.logger,
	})
}

func (p *starting) openPictures(ctx context.Context) (err error) {
	p.pictures, err = live.Open(ctx, live.Config{
		DB: p.database, Log: p.log, Threads: p.threads, Houses: p.houses, Bots: p.bots, Inboxes: p.inboxes, Boxes: p.boxes, Logger: p.logger,
	})
	if err != nil {
		return err
	}
	p.closeWatches = sync.OnceFunc(func() { p.pictures.Close(); p.closeLog() })
	p.onStop(func(context.Context) error { p.closeWatches(); return nil })
	return nil
}

func (p *starting) openCredentials(context.Context) error {
	p.auth = auth.New(auth.Config{DB: p.database, Sealer: p.sealer, Secure: p.overHTTPS(), Logger: p.logger})
	stopListening := p.auth.Listen()
	p.onStop(func(context.Context) error { stopListening(); return nil })
	login := p.cfg.Login
	if err := login.Check(); err != nil {
		return err
	}
	p.known.Add([]byte(login.ClientSecret))
	login.Redirect, login.Key, login.UseOnce, login.Logger = p.url+rpc.CallbackPath, p.sealer.Derive("logins"), p.auth.UseOnce, p.logger
	p.login = oidc.New(login)
	return nil
}

func (p *starting) openModels(context.Context) error {
	p.models = model.NewHouses(p.database, p.secrets, p.offered, p.providers)
	p.models.PrivateHosts, p.models.SharedWith = p.cfg.ModelHosts, p.cfg.ModelHouses
	return nil
}

func (p *starting) startDispatcher(ctx context.Context) (err error) {
	p.turns = botTurns(p.database, p.bots, p.houses, p.models, p.providers, p.cfg)
	p.turns.Observe = p.metrics.work.turn
	p.dispatcher, err = dispatch.Start(ctx, dispatch.Config{
		DB: p.database, Log: p.log, Threads: p.threads, Boxes: p.boxes, Logger: p.logger, Limits: p.cfg.Work, LogQuota: p.cfg.LogQuota, MemberLogQuota: p.cfg.MemberLogQuota,
		Artifacts: p.artifacts, Secrets: p.secrets, SpoolDir: p.dir.join("spool"), SpoolSize: p.cfg.SpoolSize, EndCommands: p.cfg.ownsDatabase(),
		Fetch: p.cfg.Fetch, Runs: p.runs(), ObserveCommand: p.metrics.work.command,
		Bots: p.turns, Rosters: p.bots, Mentions: p.inboxes,
		Jobs: jobs.Config{Tracer: p.traces, Tasks: []jobs.Task{
			{Name: "turn_signing_keys", Every: time.Hour, Do: p.auth.RotateOldSigningKeys},
			{Name: "sweep_sandboxes", Every: 5 * time.Minute, Do: func(ctx context.Context) error { p.boxes.Sweep(ctx); return nil }},
			{Name: "sweep_accounts", Every: 5 * time.Minute, Do: func(ctx context.Context) error { p.boxes.SweepAccounts(ctx); return nil }},
			{Name: "drop_audit_events", Every: time.Hour, Do: func(ctx context.Context) error { return p.houses.DropAuditEvents(ctx, p.cfg.AuditKeep) }},
			{Name: "push_notifications", Every: push.Every, Do: p.pusher.Sweep},
			{Name: "collect_artifacts", Every: collectEvery, Do: p.artifacts.Collect},
		}},
	})
	return err
}

func (p *starting) openDoors(context.Context) error {
	ports := port.New(port.Config{Auth: p.auth, Boxes: p.boxes, House: p.url, Previews: p.previews(), Key: p.sealer.Derive("previews"), Logger: p.logger})
	services := rpc.Services{
		DB: p.database, Auth: p.auth, Login: p.login, Houses: p.houses, Bots: p.bots, Threads: p.threads, Log: p.log, Live: p.pictures, Inboxes: p.inboxes, Pusher: p.pusher,
		Boxes: p.boxes, Ports: ports, Dispatcher: p.dispatcher, Artifacts: p.artifacts, Agents: agents(),
		Secrets: p.secrets, Models: p.models, Logger: p.logger, Ready: p.health.ready, Observe: p.metrics.call,
	}
	subscriptions := subscription.Start(subscription.Config{
		DB: p.database, Log: p.log, Key: ed25519.NewKeyFromSeed(p.sealer.Derive("webhook signatures")), Logger: p.logger,
		PrivateHosts: p.cfg.WebhookHosts,
	})
	p.onStop(func(context.Context) error { subscriptions.Close(); return nil })
	streams := door.New(door.Config{
		Log: p.log, Authorize: door.Members(p.auth), LongPoll: p.cfg.LongPoll, Dispatcher: p.dispatcher, Subscriptions: subscriptions,
		Logger: p.logger, TagKey: p.sealer.Derive("entity tags"), MaxFollowers: maxConnections() / 2,
	})
	models := gateway.New(gateway.Config{
		DB: p.database, Authorize: gateway.Runs(p.auth), Models: p.models, Client: p.providers, Bot: p.turns.Bot, Roots: p.cfg.Roots, Budget: p.cfg.Budget, Logger: p.logger,
	})
	git, err := p.gitDoor()
	if err != nil {
		return err
	}
	p.serve(p.listener, p.closeWatches, services, streams, models, git)
	p.onStop(p.dispatcher.Stop) // runs before the doors close, so that watching clients get the results
	return nil
}

// gitTokens makes and checks the tokens of git in sandboxes.
func (p *starting) gitTokens() *gitdoor.Tokens {
	return gitdoor.NewTokens(p.sealer.Derive("git in sandboxes"))
}

// gitDoor returns the door for git in sandboxes. It reaches only the hosts that the sandboxes may reach.
func (p *starting) gitDoor() (*gitdoor.Door, error) {
	private, err := outbound.ParseHosts(p.cfg.Local.PrivateHosts...)
	if err != nil {
		return nil, err
	}
	return gitdoor.New(gitdoor.Config{
		Dial: egress.ThroughProxy(outbound.Dialer(private.Allows)), Authorities: p.cfg.GitAuthorities, Redact: p.known.Add, Logger: p.logger,
		Tokens: p.gitTokens(), Environment: p.boxes.EnvironmentOf,
		Credential: func(ctx context.Context, house, environment, host string) (c gitdoor.Credential, err error) {
			if p.cfg.maxima().Egress == egress.None {
				return c, fault.New(fault.Forbidden, "the operator of this server allows sandboxes no host of the internet", "ask the operator")
			}
			bound, err := p.boxes.GitCredential(ctx, db.Scope{House: house}, environment, host)
			if err != nil {
				return c, err
			}
			value, err := p.secrets.Value(ctx, house, bound.Secret)
			if fault.CodeOf(err) == fault.NotFound {
				err = fault.Newf(fault.Precondition, "set it with: arbe secret set "+bound.Secret, "the house has no secret %s, which opens repositories at %s", bound.Secret, host)
			}
			app := gitdoor.App{ID: bound.GitHubApp, API: bound.GitHubAPI}
			return gitdoor.Credential{User: bound.User, Password: value, HostKeys: bound.HostKeys, App: app}, err
		},
	}), nil
}

func (p *starting) startMetrics(context.Context) error {
	p.metrics.collect(sources{database: p.database, log: p.log, pictures: p.pictures, dispatcher: p.dispatcher, drivers: p.drivers, dataDir: p.dir.path})
	return p.serveMetrics()
}

func (p *starting) welcomeOwner(ctx context.Context) error {
	return p.welcome(ctx, p.dir, p.auth, p.owner)
}

// startLimited is like Start, with limits on clients.
func startLimited(ctx context.Context, cfg Config, limits httpd.Limits) (*Server, error) {
	if limits.MaxBody == 0 {
		limits.MaxBody = max(32<<20, cmp.Or(cfg.ArtifactMaxSize, artifact.DefaultMaxSize)+1) // one byte more, so that artifacts and not the HTTP server refuse it, with a clear error
	}
	limits.Credential = func(h http.Header) string {
		token, _ := auth.Credential(h)
		return cmp.Or(token, gateway.Credential(h))
	}
	known := &secret.Known{}
	logger := slog.New(secret.LogHandler(logging.New(os.Stderr, cfg.logFormat(), cfg.LogLevel).Handler(), known))
	s := &Server{cfg: cfg, limits: limits, failed: make(chan error, 4), logger: logger, known: known, fromBoxes: newInProcess()}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Start starts a server, and returns once it serves. Without a DatabaseURL, the server starts its own Postgres. ctx limits
// only the start; the server runs until [Server.Stop]. If Start fails, nothing is left running.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return startLimited(ctx, cfg, httpd.Limits{})
}
