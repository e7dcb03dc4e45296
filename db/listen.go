package db

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Connect opens a connection outside the pool. name is its application_name, which shows its purpose to operators.
// settings are Postgres settings for this connection. The error is explained as by [Explain]. The caller closes the
// connection with [HangUp].
func (d *DB) Connect(ctx context.Context, name string, settings map[string]string) (*pgx.Conn, error) {
	return d.connect(ctx, name, settings, nil)
}

func (d *DB) connect(ctx context.Context, name string, settings map[string]string, heard func(*pgconn.Notification)) (*pgx.Conn, error) {
	cfg := d.pool.Config().ConnConfig
	maps.Copy(cfg.RuntimeParams, settings)
	cfg.RuntimeParams["application_name"] = name
	if heard != nil {
		cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { heard(n) }
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, Explain(err)
}

// HangUp closes a connection that may be dead. It waits at most a second for a regular end, because a dead connection
// would never answer.
func HangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// The pauses of a [Listener] between two attempts to connect. Each is twice the previous one.
const (
	minRetryPause = 5 * time.Millisecond
	maxRetryPause = 500 * time.Millisecond
)

// Listener receives notifications over a connection outside the pool. It regularly proves with a round trip that the
// connection works, and replaces one that is broken or silent.
//
// Postgres keeps no notifications for a server that does not listen. A Listener therefore reports when some may have
// been missed (Connected), when none are received (Broken), and up to when all have certainly been received (Proved).
// Its owner must read missed changes from the tables.
//
// One goroutine at a time calls the functions: the one in Connect or Run. They must be quick, because nothing is
// received while one runs.
type Listener struct {
	DB *DB
	// Name is the connection's application_name.
	Name string
	// Channels are the channels to listen on.
	Channels []string
	// ConnectTimeout limits how long making a connection may take.
	ConnectTimeout time.Duration
	// ProveEvery is the time between two round trips, and ProveTimeout limits each. A silent connection is replaced
	// after both together.
	ProveEvery, ProveTimeout time.Duration

	// Notified is called with each notification.
	Notified func(*pgconn.Notification)
	// Connected is called when a new connection listens, including the first one. All later commits will be received;
	// earlier ones may have been missed. If it returns an error, the connection is dropped.
	Connected func(Ask) error
	// Proved is called after each round trip with the time when it began: everything committed before that time has
	// been received. Defaults to nil: not called.
	Proved func(began time.Time)
	// Broken is called with the cause when notifications are no longer received: when a connection broke, or when Run
	// could not make the first one. It is called once, and again only after Connected. It is not called when Run's
	// context ends.
	Broken func(cause error)

	conn *pgx.Conn
	// wanted reports that Prove was called since the last proof began. interrupt ends the wait for notifications.
	mu        sync.Mutex
	wanted    bool
	interrupt context.CancelFunc
	// down reports that Broken was called, and Connected not since.
	down bool
}

// Ask runs query with the listening connection and a context that ends after ProveTimeout. If it succeeds, it counts as
// a proof, so query must make a round trip.
type Ask func(query func(ctx context.Context, conn *pgx.Conn) error) error

// Connect makes the first connection. It is for an owner that must know at once that the connection listens. Call it
// before Run, which otherwise makes the connection. After a successful Connect, Run must be called, because it closes
// the connection.
func (l *Listener) Connect(ctx context.Context) error {
	if err := l.dial(ctx); err != nil {
		return err
	}
	l.down = false
	if err := l.Connected(func(query func(context.Context, *pgx.Conn) error) error { return l.prove(ctx, query) }); err != nil {
		l.hangUp()
		return err
	}
	return nil
}

// Run receives notifications until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	defer l.hangUp()
	for pause := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		err := l.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		if !l.down {
			l.down = true
			l.DB.reconnects.Add(1)
			l.Broken(err)
		}
		l.hangUp()
		if time.Since(began) > maxRetryPause { // a connection that worked for long enough is replaced at once
			pause = 0
			continue
		}
		pause = min(max(2*pause, minRetryPause), maxRetryPause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// dial opens a connection that listens.
func (l *Listener) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.ConnectTimeout)
	defer cancel()
	conn, err := l.DB.connect(ctx, l.Name, nil, l.Notified)
	if err != nil {
		return err
	}
	var statements strings.Builder
	for _, channel := range l.Channels {
		statements.WriteString("listen " + pgx.Identifier{channel}.Sanitize() + ";")
	}
	if _, err := conn.Exec(ctx, statements.String()); err != nil {
		HangUp(conn)
		return Explain(err)
	}
	l.conn = conn
	return nil
}

// Prove makes Run prove now that all notifications of earlier commits were received; see Proved. It does not wait, and
// may be called at any time, by any goroutine. Calls before the next proof begins share it.
func (l *Listener) Prove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if l.interrupt != nil {
		l.interrupt()
	}
}

// takeWanted reports whether a proof is wanted that has not begun.
func (l *Listener) takeWanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := l.wanted
	l.wanted = false
	return wanted
}

// receive receives notifications until the connection breaks. It connects first if necessary.
func (l *Listener) receive(ctx context.Context) error {
	if l.conn == nil {
		if err := l.Connect(ctx); err != nil {
			return err
		}
	}
	for proved := time.Now(); ; {
		if err := l.wait(ctx, proved.Add(l.ProveEvery)); err != nil {
			return err
		}
		if now := time.Now(); l.takeWanted() || now.Sub(proved) >= l.ProveEvery {
			if err := l.prove(ctx, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) }); err != nil {
				return err
			}
			proved = now
		}
	}
}

// wait waits for one notification, for the deadline, or until a proof is wanted.
func (l *Listener) wait(ctx context.Context, deadline time.Time) error {
	bound, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	l.mu.Lock()
	if l.wanted {
		l.mu.Unlock()
		return nil
	}
	l.interrupt = cancel
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.interrupt = nil
		l.mu.Unlock()
	}()
	err := l.conn.PgConn().WaitForNotification(bound)
	if err != nil && bound.Err() != nil && ctx.Err() == nil && !l.conn.IsClosed() {
		return nil
	}
	return err
}

// prove makes a round trip, which proves that the notifications of all earlier commits were received, because a commit
// notifies the listening backends before it returns, and a backend delivers its notifications before it is ready for
// the next query.
func (l *Listener) prove(ctx context.Context, roundTrip func(context.Context, *pgx.Conn) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.ProveTimeout)
	defer cancel()
	if err := roundTrip(ctx, l.conn); err != nil {
		return err
	}
	if l.Proved != nil {
		l.Proved(began)
	}
	return nil
}

func (l *Listener) hangUp() {
	if l.conn != nil {
		HangUp(l.conn)
		l.conn = nil
	}
}
