package away

import (
	"context"
	"io"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file is the side of the server that does not reach the sandbox.

// Driver returns a driver for one sandbox. It implements the methods that [sandbox.Elsewhere] promises.
func (a *Away) Driver(scope db.Scope, box sandbox.Sandbox) sandbox.Driver {
	return &driver{a: a, scope: scope, box: box}
}

type driver struct {
	a     *Away
	scope db.Scope
	box   sandbox.Sandbox
}

var _ sandbox.Dialer = (*driver)(nil)

// Guarantees promises ports: every driver whose sandboxes belong to a machine has them, or refuses a connection itself.
func (d *driver) Guarantees() sandbox.Guarantees { return sandbox.Guarantees{Ports: true} }

// Asleep asks the other server.
func (d *driver) Asleep(ctx context.Context, _ string) (bool, error) {
	got, err := d.a.ask(ctx, d.scope, d.box.Machine, call{Op: opAsleep, Sandbox: d.box.ID})
	return got.Asleep, err
}

// use is this server's end of a session.
type use struct {
	d  *driver
	id string
	at [2]int64
}

func (d *driver) begin(ctx context.Context, c call) (*use, error) {
	u := &use{d: d, id: uuid.NewString()}
	c.Sandbox, c.Session, c.Wait = d.box.ID, u.id, longestWait
	_, err := d.a.ask(ctx, d.scope, d.box.Machine, c)
	if err != nil && ctx.Err() != nil { // the session may have begun
		go u.end()
	}
	if err != nil && fault.From(err).Reason() == fault.NobodyListens {
		err = sandbox.ErrNobodyListens
	}
	return u, err
}

// end ends the session. If the other server does not learn of it, the session ends there by itself.
func (u *use) end() {
	ctx, cancel := context.WithTimeout(context.Background(), longestWait)
	defer cancel()
	_, _ = u.d.a.ask(ctx, u.d.scope, u.d.box.Machine, call{Op: opEnd, Session: u.id})
}

// pull waits for output.
func (u *use) pull(ctx context.Context) (reply, error) {
	for {
		got, err := u.d.a.ask(ctx, u.d.scope, u.d.box.Machine, call{Op: opPull, Session: u.id, At: u.at, Wait: longestWait})
		if err != nil || got.Done || len(got.Out[0])+len(got.Out[1]) > 0 {
			for i := range u.at {
				u.at[i] += int64(len(got.Out[i]))
			}
			return got, err
		}
	}
}

// Exec runs a command without input.
func (d *driver) Exec(ctx context.Context, _ string, cmd sandbox.Command) (sandbox.Result, error) {
	if cmd.Stdin != nil || len(cmd.Secrets) > 0 || cmd.Terminal != nil {
		return sandbox.Result{}, unsupported()
	}
	u, err := d.begin(ctx, call{Op: opExec, Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Merged: cmd.Merged, Timeout: cmd.Timeout})
	if err != nil {
		return sandbox.Result{}, err
	}
	defer func() { go u.end() }()
	to := [2]io.Writer{cmd.Stdout, cmd.Stderr}
	for {
		got, err := u.pull(ctx)
		for i, data := range got.Out {
			if to[i] != nil && len(data) > 0 {
				if _, err := to[i].Write(data); err != nil {
					to[i] = nil
				}
			}
		}
		switch {
		case err != nil:
			return sandbox.Result{}, err
		case got.Done && got.Result != nil:
			return *got.Result, nil
		case got.Done:
			return sandbox.Result{}, errLost
		}
	}
}

// Download opens a file.
func (d *driver) Download(ctx context.Context, _, path string) (io.ReadCloser, error) {
	u, err := d.begin(ctx, call{Op: opDownload, Path: path})
	if err != nil {
		return nil, err
	}
	return newStream(ctx, u), nil
}

// Dial connects to a port.
func (d *driver) Dial(ctx context.Context, _ string, port uint16) (sandbox.Conn, error) {
	u, err := d.begin(ctx, call{Op: opDial, Port: port})
	if err != nil {
		return nil, err
	}
	return &conn{stream: newStream(context.WithoutCancel(ctx), u)}, nil
}

// stream reads the first output of a session.
type stream struct {
	*use
	ctx    context.Context
	cancel context.CancelFunc
	rest   []byte
	done   bool
	close  func()
}

func newStream(ctx context.Context, u *use) *stream {
	s := &stream{use: u}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.close = sync.OnceFunc(func() { s.cancel(); go u.end() })
	return s
}

// Read reads the next bytes.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.done {
			return 0, io.EOF
		}
		got, err := s.pull(s.ctx)
		if err != nil {
			return 0, err
		}
		s.rest, s.done = got.Out[0], got.Done
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the session.
func (s *stream) Close() error {
	s.close()
	return nil
}

// conn is a connection to a port.
type conn struct {
	*stream
	writing sync.Mutex
	sent    int64
}

// Write returns when the other server has the bytes.
func (c *conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(p) > 0 {
		piece := p[:min(len(p), mostPiece)]
		sent, err := c.push(piece, false)
		n, p = n+sent, p[sent:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (c *conn) push(piece []byte, last bool) (int, error) {
	got, err := c.d.a.ask(c.ctx, c.d.scope, c.d.box.Machine, call{Op: opPush, Session: c.id, At: [2]int64{c.sent}, Data: piece, Last: last, Wait: longestWait})
	if err != nil {
		return 0, err
	}
	sent := min(max(got.Accepted-c.sent, 0), int64(len(piece)))
	c.sent += sent
	return int(sent), nil
}

// CloseWrite ends the sending direction.
func (c *conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.push(nil, true)
	return err
}

// LocalAddr and RemoteAddr have no meaning here, and deadlines are not supported.
func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return fs.ErrInvalid }
func (c *conn) SetReadDeadline(time.Time) error  { return fs.ErrInvalid }
func (c *conn) SetWriteDeadline(time.Time) error { return fs.ErrInvalid }

type address struct{}

func (address) Network() string { return "sandbox" }
func (address) String() string  { return "sandbox" }

// Wake makes the sandbox of a thread ready on its machine.
func (a *Away) Wake(ctx context.Context, scope db.Scope, box sandbox.Sandbox, threadID string) (sandbox.Woken, error) {
	d := &driver{a: a, scope: scope, box: box}
	u, err := d.begin(ctx, call{Op: opWake, Thread: threadID})
	if err != nil {
		return sandbox.Woken{}, err
	}
	defer func() { go u.end() }()
	got, err := u.pull(ctx)
	switch {
	case err != nil:
		return sandbox.Woken{}, err
	case got.Woken == nil:
		return sandbox.Woken{}, errLost
	}
	return *got.Woken, nil
}

func unsupported() error {
	return fault.New(fault.Unavailable, "the sandbox is on the machine of another server, and only that one can do this", "use the address of that server")
}

// The other methods of a driver, which nobody calls for a sandbox of another machine.

func (d *driver) Create(context.Context, sandbox.Spec) (string, error) { return "", unsupported() }
func (d *driver) Upload(context.Context, string, string, fs.FileMode, io.Reader) error {
	return unsupported()
}
func (d *driver) Probe(context.Context, string) (sandbox.Liveness, error) {
	return sandbox.Unknown, nil
}
func (d *driver) Destroy(context.Context, string) error              { return unsupported() }
func (d *driver) Quarantine(context.Context, string) (string, error) { return "", unsupported() }
func (d *driver) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) {
	return nil, unsupported()
}
func (d *driver) Close(context.Context) error { return nil }
