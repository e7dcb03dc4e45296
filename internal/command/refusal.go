package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file reports hosts that commands tried to reach but their environments do not allow. A command can use any text
// as a host name, even a secret that it received, so reports are redacted like its output.

const (
	// maxRefused limits the hosts reported for one command.
	maxRefused = 20
	// maxRemembered limits the commands that a server remembers for its reports. It reports nothing about a command that an
	// earlier server left running until it continues that command.
	maxRemembered = 512
	// refusalTime limits the time to write a report.
	refusalTime = 10 * time.Second
)

// remembered is a command that was launched here.
type remembered struct {
	args                 jobArgs
	sandbox, environment string
	redactor             *secret.Redactor
	hosts                map[string]bool // already reported
}

// refusals reports the refused connections of the latest commands that this server launched or continued. It is safe for
// concurrent use.
type refusals struct {
	log    *stream.Log
	jobs   *jobs.Jobs
	logger *slog.Logger

	mu    sync.Mutex
	byID  map[string]*remembered // by their names in their sandboxes
	order []string
}

func newRefusals(log *stream.Log, j *jobs.Jobs, logger *slog.Logger) *refusals {
	return &refusals{log: log, jobs: j, logger: logger, byID: map[string]*remembered{}}
}

// remember enables reports of a command's refused connections.
func (l *refusals) remember(args jobArgs, in sandbox.Handle, redactor *secret.Redactor) {
	l.add(args.launchID(), &remembered{args: args, sandbox: in.ID, environment: in.Environment, redactor: redactor, hosts: map[string]bool{}})
}

func (l *refusals) add(id string, r *remembered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.byID[id]; !known {
		l.order = append(l.order, id)
	}
	l.byID[id] = r
	if len(l.order) > maxRemembered {
		delete(l.byID, l.order[0])
		l.order = l.order[1:]
	}
}

// report reports a refused connection.
func (l *refusals) report(r sandbox.Refusal) {
	host := entry.HostPort(r.Host, r.Port)
	of, ok := l.take(r.Launch, host)
	if !ok {
		return
	}
	go func() { // because the program waits for the answer
		ctx, cancel := context.WithTimeout(l.jobs.Results(), refusalTime)
		defer cancel()
		// Its id is derived, so that another server which continues the command does not report the host again.
		sum := sha256.Sum256([]byte(of.args.Command + "\x00" + host))
		draft := entry.NewDraft("refused."+hex.EncodeToString(sum[:16]), "", entry.HostRefused{
			CommandID: of.args.Command, SandboxID: of.sandbox, EnvironmentID: of.environment, Private: r.Private,
			Host: of.redactor.String(host), Program: of.redactor.String(entry.Clip(r.Program, 64)),
		})
		if _, err := l.log.Append(ctx, of.args.log(), draft); err != nil && fault.CodeOf(err) != fault.NotFound {
			l.logger.WarnContext(ctx, "cannot record in the thread that a command was refused a host", "error", fault.From(err).Detail())
		}
	}()
}

// take returns the command of a refused connection, and whether to report it: each host of a command once, and at most
// maxRefused hosts.
func (l *refusals) take(id, host string) (*remembered, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.byID[id]
	if r == nil || r.hosts[host] || len(r.hosts) == maxRefused {
		return nil, false
	}
	r.hosts[host] = true
	return r, true
}
