// Package auth authenticates and authorizes. It knows people and bots, browser sessions, API keys (key.go), thread
// tokens (token.go) and login links, and is the one place that decides whether a principal may do something to a target
// (authorize.go).
//
// A door authenticates once per request ([Auth.Authenticate]) and puts the [Principal] into the context. An operation
// authorizes once ([Auth.Authorize]) and gets the [db.Scope] for its transactions. There is no other way to a scope, so
// an operation that forgets to authorize sees nothing. Long-running work ends when it is no longer allowed
// ([Auth.While]).
//
// An allowed request costs no round trip to the database. Answers are kept in memory (facts.go) while the server
// receives notifications of changes (listen.go). Triggers in the database send them, so that no code can forget to. A
// change takes effect on the server that makes it before it returns, and on all others within a second, even if its
// notification is lost: then the database is asked every time (ask.go).
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"

	"sync"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

// How long a login link and a browser session are valid.
const (
	LinkTTL    = 15 * time.Minute
	SessionTTL = 30 * 24 * time.Hour
)

// Config configures an [Auth].
type Config struct {
	DB *db.DB
	// Sealer encrypts the keys that sign thread tokens, so that they are not readable in the database.
	Sealer db.Sealer
	// Recheck is the time between two checks of all long-running work while notifications are not received; see
	// [Auth.While] and [Auth.Listen]. Defaults to 500 milliseconds.
	Recheck time.Duration
	// Secure reports that browsers reach the server only over https. Sessions are then accepted only in [SecureSessionCookie],
	// because another host of the domain, such as a preview's, can set the other cookie. Defaults to false.
	Secure bool
	// Logger logs when notifications are not received. Defaults to nil: nothing is logged.
	Logger *slog.Logger
}

// Auth authenticates and authorizes. It is safe for concurrent use.
type Auth struct {
	db        *db.DB
	q         *query.Queries
	logger    *slog.Logger
	signing   *keyring
	facts     *facts
	secure    bool
	asked     singleflight.Group
	rechecker *rechecker
	// listens is the connection that receives changes; nil before [Auth.Listen].
	listens atomic.Pointer[db.Listener]
	used    *keyUses
}

// ended reports whether the credential has expired. It checks two clocks, because the wall clock can be set back, and
// the monotonic clock stops while the machine sleeps.
func (c credential) ended(now time.Time) bool {
	return !c.until.IsZero() && !(now.Before(c.until) && now.Round(0).Before(c.until.Round(0)))
}

// CreateLink creates a one-time login link for an agent, valid for [LinkTTL], and returns its token.
func (a *Auth) CreateLink(ctx context.Context, agent string) (token string, expires time.Time, err error) {
	token, expires = newToken(), time.Now().Add(LinkTTL)
	err = a.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		return a.q.CreateLoginLink(ctx, tx, digest(token), agent, expires)
	})
	return token, expires, err
}

// Redeem exchanges a login link's token for a session of [SessionTTL]. It works once. The error for an unknown, used or
// expired link is a [fault.Unauthenticated] that says which.
func (a *Auth) Redeem(ctx context.Context, link string) (token string, expires time.Time, p Principal, err error) {
	token, expires = newToken(), time.Now().Add(SessionTTL)
	row, err := a.q.RedeemLoginLink(ctx, a.db.Pool(), digest(link), digest(token), expires)
	if err != nil {
		return "", time.Time{}, Principal{}, db.Explain(err)
	}
	if err := goodLink(row.Outcome); err != nil {
		return "", time.Time{}, Principal{}, err
	}
	return token, expires, Principal{Agent: row.AgentID, Credential: session, hash: digest(token)}, nil
}

// StartSessionTx creates a browser session of [SessionTTL] for an agent in the caller's transaction, whose scope must
// be that agent's.
func (a *Auth) StartSessionTx(ctx context.Context, tx pgx.Tx, agent string) (token string, expires time.Time, err error) {
	token, expires = newToken(), time.Now().Add(SessionTTL)
	return token, expires, a.q.CreateSession(ctx, tx, digest(token), agent, expires)
}

// Link returns the principal that a login link's token would log in, and leaves the link valid. Errors: those of
// [Auth.Redeem].
func (a *Auth) Link(ctx context.Context, link string) (p Principal, err error) {
	// It redeems the link and rolls that back, because the server's role cannot read other people's links.
	tx, err := a.db.Pool().Begin(ctx)
	if err != nil {
		return Principal{}, db.Explain(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // never committed, so that nothing changes
	row, err := a.q.RedeemLoginLink(ctx, tx, digest(link), digest(newToken()), time.Now())
	if err != nil {
		return Principal{}, db.Explain(err)
	}
	if err := goodLink(row.Outcome); err != nil {
		return Principal{}, err
	}
	return Principal{Agent: row.AgentID}, nil
}

// goodLink returns the error for the outcome of redeeming a link, or nil if it succeeded.
func goodLink(outcome string) error {
	switch outcome {
	case "ok":
		return nil
	case "used":
		return notLoggedIn("this login link was already used")
	case "expired":
		return notLoggedIn("this login link has expired")
	}
	return notLoggedIn("this login link is not known")
}

// UseOnce records the use of a one-time id, and reports whether it was the first one. The record is kept until the id
// expires.
func (a *Auth) UseOnce(ctx context.Context, id string, expires time.Time) (first bool, err error) {
	first, err = a.q.UseTicket(ctx, a.db.Pool(), id, expires)
	return first, db.Explain(err)
}

// EndSession ends p's browser session. It does nothing for other credentials or for a session that has ended.
func (a *Auth) EndSession(ctx context.Context, p Principal) error {
	if p.Credential != session {
		return nil
	}
	return a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		return a.q.DeleteSession(ctx, tx, p.hash)
	})
}

// newToken returns a random credential of 256 bits.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// digest returns the stored form of a credential: its hash, so that nobody who reads the database can use the
// credential.
func digest(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

// watch is one use of [Auth.While].
type watch struct {
	auth   *Auth
	p      Principal
	action Action
	target Target
	cancel context.CancelCauseFunc
	// expiry checks the watch when its credential expires, because no notification announces that.
	expiry *time.Timer
	// doubt is closed when a pending check of the watch is done; nil if none is pending. The lock of the rechecker guards
	// it.
	doubt chan struct{}
}

// rechecker holds all watches of this server. When a change may have ended the permission of some watches, it checks
// all of these in one query, so that the number of queries does not grow with the watches.
type rechecker struct {
	auth *Auth
	// interval is the time between two checks of all watches while notifications are not received.
	interval time.Duration

	mu      sync.Mutex
	watches map[*watch]struct{}
	byTopic map[string]map[*watch]struct{} // the watches by the topics they depend on
	// due are the watches to check. running reports that a goroutine checks them.
	due     map[*watch]struct{}
	running bool
	ticking bool
}

// keyUses collects when keys and sessions were used. Uses that are not recorded when the program ends are lost.
type keyUses struct {
	mu   sync.Mutex
	when map[[32]byte]use
}

// use is the last use of a credential.
type use struct {
	at time.Time
	// agent is the beginning of the User-Agent header; empty for a key.
	agent string
}
