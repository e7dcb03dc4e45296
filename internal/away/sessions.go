package away

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

const (
	// abandonedAfter is how long after its last call a session ends: its caller was probably killed.
	abandonedAfter = time.Minute
	// mostSessions limits the sessions of one server.
	mostSessions = 500
)

// The sessions are on the side of the server that reaches the sandbox.

// session returns a session, and keeps it from being abandoned.
func (a *Away) session(key sessionKey) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[key]
	if s != nil {
		s.abandoned.Reset(abandonedAfter)
	}
	return s
}

func (a *Away) end(key sessionKey, s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.abandoned.Stop()
	s.cancel()
	delete(a.sessions, key)
}

// begin begins a session, unless it has begun.
func (a *Away) begin(ctx context.Context, scope db.Scope, key sessionKey, c call) error {
	s := &session{changed: make(chan struct{})}
	// The session outlives the call.
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.mu.Lock()
	_, begun := a.sessions[key]
	full := len(a.sessions) >= mostSessions
	if !begun && !full {
		s.abandoned = time.AfterFunc(abandonedAfter, func() { a.end(key, s) })
		a.sessions[key] = s
	}
	a.mu.Unlock()
	switch {
	case begun:
		return nil
	case full:
		return fault.New(fault.Exhausted, "too many servers use sandboxes of this machine at once", "try again in a moment")
	}
	err := a.open(ctx, scope, s, c)
	if err != nil {
		a.end(key, s)
	}
	return err
}

// open starts the command, file or connection of a session.
func (a *Away) open(ctx context.Context, scope db.Scope, s *session, c call) error {
	if c.Op == opWake {
		go func() {
			w, err := a.config.Boxes.Wake(s.ctx, scope, c.Thread)
			s.update(func() { s.done, s.err, s.woken = true, err, &w })
		}()
		return nil
	}
	h, err := a.config.Boxes.Handle(ctx, scope, c.Sandbox)
	if err != nil {
		return err
	}
	used := a.config.Boxes.KeepUsed(s.ctx, scope, h.ID)
	context.AfterFunc(s.ctx, used)
	switch c.Op {
	case opExec:
		go s.exec(h, c)
	case opDownload:
		file, err := h.Download(s.ctx, c.Path)
		if err != nil {
			return err
		}
		go s.copy(file)
	case opDial:
		return s.dial(ctx, h, c)
	}
	return nil
}

// exec runs a command until it ends.
func (s *session) exec(h sandbox.Handle, c call) {
	cmd := sandbox.Command{Argv: c.Argv, Dir: c.Dir, Env: c.Env, Merged: c.Merged, Timeout: c.Timeout, Stdout: output{s, 0}}
	if !c.Merged {
		cmd.Stderr = output{s, 1}
	}
	got, err := h.Exec(s.ctx, cmd)
	s.update(func() { s.done, s.err, s.result = true, err, &got })
}

// dial connects to a port, and passes on what both sides send.
func (s *session) dial(ctx context.Context, h sandbox.Handle, c call) error {
	d, err := h.Dialer()
	if err != nil {
		return err
	}
	connecting, stop := context.WithTimeout(ctx, longestWait)
	defer stop()
	conn, err := d.Dial(connecting, h.Ref, c.Port)
	if err != nil {
		return err
	}
	context.AfterFunc(s.ctx, func() { conn.Close() })
	go s.copy(conn)
	go s.feed(conn)
	return nil
}
