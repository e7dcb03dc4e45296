// Package db is arbe's access to Postgres: the schema (migrations), the queries (queries, generated into query), and
// the one way to use them: a transaction in the scope of one house.
//
// Row-level security is real. The server's role owns nothing and bypasses nothing, so a transaction sees only the
// rows of its [Scope]. The rule to remember: a house's rows are visible only inside [DB.In]. A query on the pool has
// no scope and sees no house's rows. The pool is for the job queue, for locks, and for narrow functions of the schema
// that answer before the caller is known, or for all houses at once; a test lists the packages that use it. Code that
// needs a connection outside the pool uses [DB.Connect] or, to receive notifications, a [Listener]. Code that caches
// permissions learns from [DB.OnPermission] and [PermissionChannel] which cached answers are no longer valid.
package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/trace"
)

// DB is a pool of connections under the server's own role. It is safe for concurrent use.
type DB struct {
	// reconnects counts the connections of listeners that were replaced.
	reconnects         atomic.Int64
	pool               *pgxpool.Pool
	transactionTimeout time.Duration
	shares             *shares
	permissions        permissions
}

// Scope says which rows a transaction may see. An empty field shows no rows of its kind.
type Scope struct {
	// House is the id of the house whose rows are visible.
	House string
	// Agent is the uuid of the requesting agent.
	Agent string
	// GenericPlans makes Postgres plan each statement once per connection, whatever its values. It is for statements
	// that read by a key but get a table scan if planned for their values: row-level security hides the number of
	// matching rows from the planner.
	GenericPlans bool
}

// Options tune [Open]. The zero value is right for a server.
type Options struct {
	// MaxConns limits the pool. Defaults to 20.
	MaxConns int32
	// TransactionTimeout limits a transaction of [DB.In]. Defaults to 30 seconds, the time limit of a request.
	TransactionTimeout time.Duration
	// Noticed is called with each notice from Postgres, from several goroutines. Defaults to nil.
	Noticed func(*pgconn.Notice)
}

// Open connects with the server's own role, as returned by [Migrate]. Its errors name the cause: a [fault.Unavailable]
// if it may pass by itself, otherwise a [fault.Precondition].
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := poolConfig(url, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, unreachable(err)
	}
	d := &DB{pool: pool, transactionTimeout: 30 * time.Second, shares: newShares(cfg.MaxConns)}
	if err := d.Ping(ctx); err != nil {
		d.Close()
		return nil, err
	}
	if o.TransactionTimeout > 0 {
		d.transactionTimeout = o.TransactionTimeout
	}
	return d, nil
}

// poolConfig returns the settings of the connections.
func poolConfig(url string, o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, badURL(err)
	}
	cfg.MaxConns = 20
	if o.MaxConns > 0 {
		cfg.MaxConns = o.MaxConns
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "arbe"
	// A client that has vanished must not hold a stream's lock for long.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "60s"
	// All statements are short, so compiling one would take longer than running it.
	cfg.ConnConfig.RuntimeParams["jit"] = "off"
	// Set it, because a server's own setting could suppress the notices that keepNotice needs.
	cfg.ConnConfig.RuntimeParams["client_min_messages"] = "notice"
	cfg.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if keepNotice(c, n); o.Noticed != nil {
			o.Noticed(n)
		}
	}
	// Check a connection that was idle before it is used, because it never answers if its other end has vanished. It is
	// then replaced.
	cfg.PingTimeout = 2 * time.Second
	return cfg, nil
}

// Ping reports whether the database answers. Errors name the cause, as those of [Open] do.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.pool.Ping(ctx); err != nil {
		return explainConnect(err)
	}
	return nil
}

// Stats returns the state of the pool.
func (d *DB) Stats() *pgxpool.Stat { return d.pool.Stat() }

// Reconnects returns how often a [Listener] had to replace its connection.
func (d *DB) Reconnects() int64 { return d.reconnects.Load() }

// Close closes the pool. It waits for open transactions.
func (d *DB) Close() { d.pool.Close() }

// Pool returns the pool, for work that belongs to no house: the job queue, session locks, and functions that answer
// for all houses. A query on it sees no house's rows.
func (d *DB) Pool() *pgxpool.Pool { return d.pool }

// In runs f in one transaction with the given scope, and commits if f returns nil. f must not keep tx and must not do
// anything slow. In does not retry. It returns f's error unchanged, except that a lost or refused connection is a
// [fault.Unavailable]: then it is unknown whether the transaction was committed, so repeating f must be harmless. A
// house may use at most half of the connections. Further transactions of the house wait, so f must not begin another
// one.
//
// A database that does not answer in time counts as a lost connection, because a machine or network that fails sends no
// message.
func (d *DB) In(ctx context.Context, scope Scope, f func(tx pgx.Tx) error) (err error) {
	begin, err := scope.begin(credentialIn(ctx))
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, d.transactionTimeout)
	defer cancel()
	leave, err := d.shares.enter(bound, scope.House)
	switch {
	case ctx.Err() != nil && err != nil:
		return ctx.Err()
	case err != nil:
		return fault.New(fault.Unavailable, "this house has too many slow requests in progress", "try again in a moment").Because(err)
	}
	defer leave()
	bound, span := trace.Start(bound, trace.Client, "transaction", trace.String("db.system.name", "postgresql"))
	defer func() { span.End(err) }()
	err = d.transact(bound, begin, func(tx pgx.Tx) error {
		defer keepSpan(tx, span)()
		// The statements of f have contexts of their own. Therefore only closing the connection ends them.
		defer context.AfterFunc(bound, func() {
			if ctx.Err() == nil {
				tx.Conn().PgConn().Conn().Close()
			}
		})()
		return f(tx)
	})
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		d.pool.Reset() // the others are as old and probably just as dead
		return unreachable(err)
	}
	return Explain(err)
}

// transact runs f in one transaction and passes on its changes of permission. It does so even if it is unknown
// whether the transaction was committed, because a needless word is harmless and a missing one is not.
func (d *DB) transact(ctx context.Context, begin string, f func(tx pgx.Tx) error) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		words := takeNotices(conn)
		conn.Release()
		if len(words) > 0 {
			d.permissions.notify(words)
		}
	}()
	asked := time.Now()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		d.shares.answered(time.Since(asked))
		return f(tx)
	})
}

// The forms of the ids in a scope: short ids, and uuids for agents.
var (
	shortID = lazyregexp.New(`^[A-Za-z0-9_-]{0,64}$`)
	uuid    = lazyregexp.New(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?$`)
)

// begin returns the statement that opens a transaction and sets its scope in one round trip. The ids are validated,
// because SET LOCAL takes no parameters, and they become part of the statement.
func (s Scope) begin(shown Credential) (string, error) {
	if !shortID.MatchString(s.House) || !uuid.MatchString(s.Agent) {
		return "", fault.New(fault.NotFound, "there is no such house or agent", "check the id")
	}
	begin := fmt.Sprintf("begin; set local app.house_id = '%s'; set local app.agent_id = '%s'", s.House, s.Agent)
	begin += shown.statement(s.Agent)
	if s.GenericPlans {
		begin += "; set local plan_cache_mode = force_generic_plan"
	}
	return begin, nil
}

// Explain turns a lost, refused or exhausted connection into a [fault.Unavailable], and a full disk into a
// [fault.Exhausted]. It returns every other error unchanged.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == pgerrcode.DiskFull:
			return fault.New(fault.Exhausted, "the database's disk is full", "free some space; no acknowledged data is lost").WithReason(fault.DiskFull).Because(err)
		case pg.Code == pgerrcode.IdleInTransactionSessionTimeout,
			slices.Contains([]string{"08", "53", "57"}, pg.Code[:2]): // lost connections, no resources, shutdowns
			return unreachable(err)
		}
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	if connect || network || pgconn.SafeToRetry(err) || isClosed(err) {
		return unreachable(err)
	}
	return err
}

// isClosed reports whether a connection broke during a statement, which pgx reports in several ways.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Violates reports whether err is a violation of the constraint with this name.
func Violates(err error, constraint string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.ConstraintName == constraint
}

// State returns the SQLSTATE of err, or "" if Postgres did not report one.
func State(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func badURL(err error) error {
	return fault.New(fault.Invalid, "DATABASE_URL is not a Postgres URL",
		"write it as postgres://user:password@host:5432/database").Because(err)
}

// OnPermission calls f with the permission changes of each transaction of [DB.In], as the words that the database
// sends to [PermissionChannel]. It calls f after the commit and before In returns, and possibly for a transaction
// that failed. f must be quick and safe for concurrent use.
func (d *DB) OnPermission(f func(words []string)) (stop func()) {
	p := &d.permissions
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		p.listeners = map[int]func([]string){}
	}
	id := p.next
	p.next++
	p.listeners[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, id)
	}
}
