// Package db is arbe's door to Postgres: its schema (migrations), its queries (queries, generated into
// query) and the one way to use them, a transaction that looks with the eyes of one house.
//
// Row-level security is real: the server's role owns nothing and bypasses nothing, so a transaction sees
// what its [Scope] names. The rule to remember: there is no way to run a query outside [DB.In], but for
// the narrow functions of migration 000003, which answer before it is known who asks.
package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/internal/fault"
)

// DB is a pool of connections under the server's own role. It is safe for concurrent use.
type DB struct {
	pool         *pgxpool.Pool
	answerWithin time.Duration
}

// Scope says whose eyes a transaction looks with. An empty field sees nothing of its kind.
type Scope struct {
	// House is the id of the house whose rows are visible.
	House string
	// Agent is who asks: a uuid.
	Agent string
}

// Options tune [Open]. The zero value is right for a server.
type Options struct {
	// MaxConns bounds the pool. Defaults to 20.
	MaxConns int32
	// AnswerWithin bounds a transaction of [DB.In]. Defaults to 30 seconds, as long as a request may take.
	AnswerWithin time.Duration
}

// Open connects under the server's own role, as [Migrate] returns it. An unreachable database is a
// [fault.Unavailable].
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, badURL(err)
	}
	cfg.MaxConns = 20
	if o.MaxConns > 0 {
		cfg.MaxConns = o.MaxConns
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "arbe"
	// A client that vanished must not hold a stream's lock for long.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "60s"
	// All statements are short: to compile one takes longer than to run it.
	cfg.ConnConfig.RuntimeParams["jit"] = "off"
	// A connection that was idle is asked whether it lives. One whose other end is gone without a word never
	// answers, and is replaced.
	cfg.PingTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, unreachable(err)
	}
	d := &DB{pool, 30 * time.Second}
	if o.AnswerWithin > 0 {
		d.answerWithin = o.AnswerWithin
	}
	return d, nil
}

// Close releases the pool; transactions under way are waited for.
func (d *DB) Close() { d.pool.Close() }

// Pool is the pool itself, for what is not a house's: the job queue, LISTEN, and session locks.
func (d *DB) Pool() *pgxpool.Pool { return d.pool }

// In runs f in one transaction that looks with the eyes of scope, and commits when f returns nil. f may
// not keep tx, and does nothing slow. In does not retry. An error of f comes back as it is, but for a
// lost or refused connection, which is a [fault.Unavailable]: then it is not known whether a commit
// happened, so what f writes must be harmless to repeat.
//
// A database that is silent for too long is a lost connection: when a machine or a network is gone nobody tells.
func (d *DB) In(ctx context.Context, scope Scope, f func(tx pgx.Tx) error) error {
	begin, err := scope.begin()
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, d.answerWithin)
	defer cancel()
	err = pgx.BeginTxFunc(bound, d.pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		// What f asks is bound by a context of its own: it ends with its connection.
		defer context.AfterFunc(bound, func() {
			if ctx.Err() == nil {
				tx.Conn().PgConn().Conn().Close()
			}
		})()
		return f(tx)
	})
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		d.pool.Reset() // the others are as old, and would be found out about one by one
		return unreachable(err)
	}
	return Explain(err)
}

// What a scope may hold: our ids are short ids and, of agents, uuids.
var (
	shortID = regexp.MustCompile(`^[A-Za-z0-9_-]{0,64}$`)
	uuid    = regexp.MustCompile(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?$`)
)

// begin opens a transaction and sets its eyes in one round trip. SET LOCAL takes no parameters, so the
// ids are checked before they become part of the statement.
func (s Scope) begin() (string, error) {
	if !shortID.MatchString(s.House) || !uuid.MatchString(s.Agent) {
		return "", fault.New(fault.NotFound, "there is no such house or agent", "check the id")
	}
	return fmt.Sprintf("begin; set local app.house_id = '%s'; set local app.agent_id = '%s'", s.House, s.Agent), nil
}

// Explain turns a lost, refused or exhausted connection into a [fault.Unavailable], and a full disk into
// a [fault.Exhausted]. Every other error comes back as it is.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "53100":
			return fault.New(fault.Exhausted, "the database's disk is full", "free some space; nothing that was acknowledged is lost").Because(err)
		case pg.Code == "25P03", // idle in a transaction for too long, and disconnected
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

// isClosed recognises a connection that broke under a statement, which pgx reports in several ways.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Violates tells whether err is a violation of the constraint with this name.
func Violates(err error, constraint string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.ConstraintName == constraint
}

// State is the SQLSTATE of err, or "" when Postgres did not say one.
func State(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func unreachable(err error) error {
	return fault.New(fault.Unavailable, "the database cannot be reached",
		"try again in a moment; the operator checks DATABASE_URL and that Postgres runs").Because(err)
}

func badURL(err error) error {
	return fault.New(fault.Invalid, "DATABASE_URL is not a Postgres URL",
		"write it as postgres://user:password@host:5432/database").Because(err)
}
