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

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// How long a login link and a browser session are valid.
const (
	LinkTTL    = 15 * time.Minute
	SessionTTL = 30 * 24 * time.Hour
)

// The kinds of credential, in [Principal.Credential].
const (
	session     = "session"
	apiKey      = "api_key"
	threadToken = "thread_token"
)

// Config configures an [Auth].
type Config struct {
	DB *db.DB
	// Sealer encrypts the keys that sign thread tokens, so that they are not readable in the database.
	Sealer db.Sealer
	// Recheck is the time between two checks of all long-running work while notifications are not received; see
	// [Auth.While] and [Auth.Listen]. Defaults to 500 milliseconds.
	Recheck time.Duration
	// Secure reports that browsers reach the server only over https. A session then counts only in [SecureSessionCookie], because
	// another host of the domain, such as a preview's, can set the other one. Defaults to false.
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

// New creates an Auth for a database. It asks the database every time until [Auth.Listen] is called.
func New(c Config) *Auth {
	if c.Recheck == 0 {
		c.Recheck = 500 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Auth{db: c.DB, q: query.New(), logger: c.Logger, signing: newKeyring(c.DB.Pool(), c.Sealer), facts: newFacts(), used: &keyUses{}, secure: c.Secure}
	a.rechecker = newRechecker(a, c.Recheck)
	return a
}

// Principal is the authenticated caller of a request.
type Principal struct {
	// Agent is the id of the person or bot.
	Agent string
	// Credential is the kind of credential shown: "session", "api_key" or "thread_token".
	Credential string
	// Key is the name of the API key shown; empty for other credentials. Browser reports that a browser showed its session, in a
	// cookie.
	Key     string
	Browser bool
	// CLI reports that the request says it comes from the command line of arbe.
	CLI bool
	// House is the one house that the credential is limited to; empty if it is not limited.
	House string
	// Thread is the one thread of that house that the credential is limited to, Scopes what it allows there, and
	// Expires when it ends. Only thread tokens set them.
	Thread  string
	Scopes  []string
	Expires time.Time
	// Run is the epoch of the run of that thread whose token was shown; 0 for every other credential.
	Run int64

	hash  []byte    // of the session or key shown
	token *claims   // the thread token shown
	role  string    // of the token's agent in House
	until time.Time // when the session or key expires; zero is never
}

// Via is how the caller speaks.
func (p Principal) Via() entry.Via {
	switch {
	case p.Browser || p.Agent == "":
		return entry.Via{}
	case p.CLI:
		return entry.Via{Client: entry.ViaCLI}
	}
	return entry.Via{Client: entry.ViaAPI, Key: p.Key}
}

type principalKey struct{}

// With returns a context that carries p as its principal.
func (p Principal) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the principal of a context. The error is a [fault.Unauthenticated] if there is none.
func PrincipalFrom(ctx context.Context) (Principal, error) {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p, nil
	}
	return Principal{}, notLoggedIn("nobody is logged in")
}

// Authenticate returns the principal of a credential: a browser session, an API key or a thread token. The error for an
// unknown, expired or revoked one is a [fault.Unauthenticated] that says which. It asks the database, in one round
// trip, only if the answer is not in memory or would be a refusal; see [Auth.Listen].
func (a *Auth) Authenticate(ctx context.Context, token string) (Principal, error) {
	if looksSigned(token) {
		return a.authenticateToken(ctx, token)
	}
	return a.shown(ctx, digest(token))
}

// shown returns the principal of a session or a key by its hash.
func (a *Auth) shown(ctx context.Context, hash []byte) (Principal, error) {
	c, known := lookUp[credential](a.facts, credentialWord(hash))
	if !known || c.ended(time.Now()) {
		var err error
		if c, err = askOne(ctx, a, credentialWord(hash), hash, a.credentials); err != nil {
			return Principal{}, err
		}
	}
	if c.status != "ok" {
		return Principal{}, ended(c.status)
	}
	if c.kind == apiKey {
		a.used.record(a, hash)
	}
	return Principal{Agent: c.agent, Credential: c.kind, Key: c.name, House: c.house, hash: hash, until: c.until}, nil
}

// Mark returns what [Auth.Marked] knows a session or an API key by. It is no credential: no door takes it. It is nil for a thread
// token.
func (p Principal) Mark() []byte { return p.hash }

// Marked returns the principal of a mark, as [Auth.Authenticate] does of the credential itself. Whoever calls it must know that the
// server itself gave the mark away, and for what.
func (a *Auth) Marked(ctx context.Context, mark []byte) (Principal, error) {
	if len(mark) == 0 {
		return Principal{}, notLoggedIn("there is no credential")
	}
	return a.shown(ctx, mark)
}

// ended reports whether the credential has expired. It checks two clocks, because the wall clock can be set back, and
// the monotonic clock stops while the machine sleeps.
func (c credential) ended(now time.Time) bool {
	return !c.until.IsZero() && !(now.Before(c.until) && now.Round(0).Before(c.until.Round(0)))
}

// ended returns the error for a session or key with this status; an empty status means that there is none.
func ended(status string) error {
	if status == "" {
		status = "not known"
	}
	return notLoggedIn("this credential is " + status)
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

// Link returns whom a login link's token would log in, and leaves the link valid. Errors: those of [Auth.Redeem].
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

// goodLink returns the error for the outcome of redeeming a link; nil if it succeeded.
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

// UseOnce reports whether something with an id, which is valid until it expires, is used for the first time, and notes that it is.
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

// digest returns what the database stores of a credential: its hash, so that nobody who reads the database can use it.
func digest(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

func notLoggedIn(what string) *fault.Error {
	return fault.New(fault.Unauthenticated, what, "get a new login link with: arbe login, or use an API key that is valid")
}
