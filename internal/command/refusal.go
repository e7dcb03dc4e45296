package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

// This file reports the hosts that commands wanted to reach and that their environments do not allow. A command can name
// anything as a host, also a secret that it received, so what is written is redacted as its output is.

const (
	// maxRefused is how many hosts are reported of one command.
	maxRefused = 20
	// maxRemembered is how many commands a server remembers for this. What an earlier one left running is not reported.
	maxRemembered = 512
	// refusalTime limits how long writing a report takes.
	refusalTime = 10 * time.Second
)

// remembered is a command that was launched here.
type remembered struct {
	args                 jobArgs
	sandbox, environment string
	redactor             *secret.Redactor
	hosts                map[string]bool // which were reported
}

// launches are the latest commands that this server launched or continued, by their names in their sandboxes. It is safe for
// concurrent use.
type launches struct {
	mu    sync.Mutex
	byID  map[string]*remembered
	order []string
}

func (l *launches) add(id string, r *remembered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[string]*remembered{}
	}
	if _, known := l.byID[id]; !known {
		l.order = append(l.order, id)
	}
	l.byID[id] = r
	if len(l.order) > maxRemembered {
		delete(l.byID, l.order[0])
		l.order = l.order[1:]
	}
}

// take returns the command of a refused connection, if its host is to be reported: once, and not after too many others.
func (l *launches) take(id, host string) (*remembered, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.byID[id]
	if r == nil || r.hosts[host] || len(r.hosts) == maxRefused {
		return nil, false
	}
	r.hosts[host] = true
	return r, true
}

// remember lets refused connections of the work's command be reported.
func (w *work) remember(p sandbox.Handle) {
	w.launched.add(w.job.Args.launchID(), &remembered{
		args: w.job.Args, sandbox: p.ID, environment: p.Environment, redactor: w.received.Redactor, hosts: map[string]bool{},
	})
}

// refused reports a refused connection.
func (d *Commands) refused(r sandbox.Refusal) {
	host := entry.HostPort(r.Host, r.Port)
	of, ok := d.launched.take(r.Launch, host)
	if !ok {
		return
	}
	go func() { // because the program waits for the answer
		ctx, cancel := context.WithTimeout(d.config.Jobs.Results(), refusalTime)
		defer cancel()
		// Its id is derived, so that another server which continues the command does not report the host again.
		sum := sha256.Sum256([]byte(of.args.Command + "\x00" + host))
		draft := entry.NewDraft("refused."+hex.EncodeToString(sum[:16]), "", entry.HostRefused{
			CommandID: of.args.Command, SandboxID: of.sandbox, EnvironmentID: of.environment, Private: r.Private,
			Host: of.redactor.String(host), Program: of.redactor.String(entry.Clip(r.Program, 64)),
		})
		if _, err := d.config.Log.Append(ctx, of.args.log(), draft); err != nil && fault.CodeOf(err) != fault.NotFound {
			d.config.Logger.WarnContext(ctx, "the thread is not told that a command was kept from a host", "error", fault.From(err).Detail())
		}
	}()
}
