// Package away lets every server use the files and ports of sandboxes that only another server reaches, because they are
// on its machine. The other server does the work, and keeps the output in a session until this server has fetched it.
package away

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/relay"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Config configures an [Away].
type Config struct {
	DB     *db.DB
	Jobs   *jobs.Jobs
	Boxes  *sandbox.Resolver
	Logger *slog.Logger
	// Servers returns the servers that may be running.
	Servers func(context.Context) ([]jobs.Server, error)
}

// Away reaches sandboxes of other machines, and answers the servers there. It is safe for concurrent use.
type Away struct {
	config Config
	relay  *relay.Relay[call, reply]

	mu       sync.Mutex
	servers  map[string]jobs.Server // by machine: the server that answered last
	sessions map[sessionKey]*session
}

// New returns an Away and gives it to the resolver. It must be called before [jobs.Jobs.Start].
func New(c Config) *Away {
	a := &Away{config: c, servers: map[string]jobs.Server{}, sessions: map[sessionKey]*session{}}
	a.relay = relay.New(relay.Config[call, reply]{DB: c.DB, Jobs: c.Jobs, Logger: c.Logger, Topic: "sandbox.call", Serve: a.serve, NoReply: errNoReply})
	c.Boxes.ReachElsewhere(a)
	return a
}

var errNoReply = fault.New(fault.Unavailable, "the server on the machine of the sandbox does not answer", "try again")

// ask asks the server of a machine.
func (a *Away) ask(ctx context.Context, scope db.Scope, machine string, c call) (reply, error) {
	for again := false; ; again = true {
		server, err := a.serverOf(ctx, scope, machine)
		if err != nil {
			return reply{}, err
		}
		c.Machine, c.Agent = machine, scope.Agent
		got, err := a.relay.Ask(ctx, scope, server, c, c.Wait)
		if err != errNoReply {
			return got, err
		}
		a.mu.Lock()
		delete(a.servers, machine)
		a.mu.Unlock()
		if again {
			return got, err
		}
	}
}

// serverOf finds a server that reaches a machine.
func (a *Away) serverOf(ctx context.Context, scope db.Scope, machine string) (jobs.Server, error) {
	a.mu.Lock()
	server, known := a.servers[machine]
	a.mu.Unlock()
	if known {
		return server, nil
	}
	all, err := a.config.Servers(ctx)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	found := a.find(ctx, scope, machine, all)
	select {
	case server, ok := <-found:
		if !ok {
			break
		}
		a.mu.Lock()
		a.servers[machine] = server
		a.mu.Unlock()
		return server, nil
	case <-ctx.Done():
	}
	return 0, fault.New(fault.Unavailable, "the machine of the sandbox is offline", "try again when its server is back").Because(ctx.Err())
}

// find asks servers whether they reach a machine. The channel closes after the last answer.
func (a *Away) find(ctx context.Context, scope db.Scope, machine string, among []jobs.Server) <-chan jobs.Server {
	found := make(chan jobs.Server, len(among))
	var asking sync.WaitGroup
	for _, server := range among {
		if server == a.config.Jobs.Server() {
			continue
		}
		asking.Go(func() {
			if got, err := a.relay.Ask(ctx, scope, server, call{Op: opFind, Machine: machine}, 0); err == nil && got.Here {
				found <- server
			}
		})
	}
	go func() { asking.Wait(); close(found) }()
	return found
}

// serve answers another server.
func (a *Away) serve(ctx context.Context, scope db.Scope, c call) (r reply, err error) {
	scope.Agent = c.Agent
	c.Wait = min(c.Wait, longestWait)
	if c.Op == opFind {
		return reply{Here: slices.Contains(a.config.Boxes.MachineIDs(), c.Machine)}, nil
	}
	switch key := (sessionKey{scope.House, c.Session}); c.Op {
	case opPull:
		if s := a.session(key); s != nil {
			return s.pull(ctx, c)
		}
	case opPush:
		if s := a.session(key); s != nil {
			return s.push(ctx, c)
		}
	case opEnd:
		if s := a.session(key); s != nil {
			a.end(key, s)
		}
		return reply{}, nil
	case opAsleep:
		return a.asleep(ctx, scope, c)
	case opExec, opDownload, opDial, opWake:
		return reply{}, a.begin(ctx, scope, key, c)
	default:
		return reply{}, fault.New(fault.Precondition, "the server of the sandbox's machine does not know this call", "use servers of the same version")
	}
	return reply{}, errLost
}

// asleep answers whether a sandbox is asleep.
func (a *Away) asleep(ctx context.Context, scope db.Scope, c call) (r reply, err error) {
	h, err := a.config.Boxes.Handle(ctx, scope, c.Sandbox)
	if err != nil {
		return reply{}, err
	}
	d, err := h.Dialer()
	if err == nil {
		r.Asleep, err = d.Asleep(ctx, h.Ref)
	}
	return r, err
}
