// Package auth says who is asking and whether they may: it knows people and bots, browser sessions, API
// keys (key.go), tokens of threads (token.go) and login links, and is the one place that answers "may this
// principal do this to that?" (may.go).
//
// A door authenticates once per request ([Auth.Authenticate]) and puts the [Principal] into the context;
// an operation authorizes once ([Auth.May]) and gets the [db.Scope] its transactions look with. There is
// no other way to a scope, so an operation that forgets to ask sees nothing. What goes on for long is
// authorized again and again ([Auth.While]).
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// How long a login link and a browser session are good for.
const (
	LinkLife    = 15 * time.Minute
	SessionLife = 30 * 24 * time.Hour
)

// The kinds of credential, as [Principal] names them.
const (
	session     = "session"
	apiKey      = "api_key"
	threadToken = "thread_token"
)

// Config is what an [Auth] works with.
type Config struct {
	DB *db.DB
	// Sealer keeps the keys that sign threads' tokens unreadable in the database.
	Sealer db.Sealer
	// Recheck is how often whoever reads on is asked again whether they may: see [Auth.While]. Defaults to 10
	// seconds.
	Recheck time.Duration
}

// Auth answers who and whether. It is safe for concurrent use.
type Auth struct {
	db      *db.DB
	q       *query.Queries
	signing *keyring
	live    *live
	used    *used
}

// New makes an Auth over a database.
func New(c Config) *Auth {
	if c.Recheck == 0 {
		c.Recheck = 10 * time.Second
	}
	a := &Auth{db: c.DB, q: query.New(), signing: newKeyring(c.DB.Pool(), c.Sealer), used: &used{}}
	a.live = &live{auth: a, every: c.Recheck}
	return a
}

// Principal is who asks.
type Principal struct {
	// Agent is the id of the person or bot.
	Agent string
	// Credential is what they showed: "session", "api_key" or "thread_token".
	Credential string
	// House is the one house the credential is limited to; empty when it is not limited.
	House string
	// Thread is the one thread it is limited to, of that house; Scopes is what it may do there, and Expires
	// when it ends. They are a thread token's alone.
	Thread  string
	Scopes  []string
	Expires time.Time

	hash  []byte  // of the session or the key that was shown
	token *claims // of the thread token that was shown,
	keyID string  // the key that signed it,
	role  string  // and what its agent is in House
}

type principalKey struct{}

// With returns a context in which p is the one who asks.
func (p Principal) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Who is the principal of a context. A context without one is a [fault.Unauthenticated].
func Who(ctx context.Context) (Principal, error) {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p, nil
	}
	return Principal{}, notLoggedIn("nobody is logged in")
}

// Authenticate tells whose credential token is: a browser session, an API key or a thread's token. An unknown,
// expired or revoked one is a [fault.Unauthenticated] that says which. It takes one round trip to the database.
func (a *Auth) Authenticate(ctx context.Context, token string) (Principal, error) {
	if looksSigned(token) {
		return a.authenticateToken(ctx, token)
	}
	hash := digest(token)
	row, err := a.q.Authenticate(ctx, a.db.Pool(), hash)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Principal{}, ended("")
	case err != nil:
		return Principal{}, db.Explain(err)
	case row.Standing != "ok":
		return Principal{}, ended(row.Standing)
	}
	if row.Credential == apiKey {
		a.used.note(a, hash)
	}
	return Principal{Agent: row.AgentID, Credential: row.Credential, House: row.HouseID, hash: hash}, nil
}

// ended says how a session or a key stands that is not good; empty is one that there is not.
func ended(standing string) error {
	if standing == "" {
		standing = "not known"
	}
	return notLoggedIn("this credential is " + standing)
}

// CreateLink makes the token of a one-time login link for an agent, good for [LinkLife].
func (a *Auth) CreateLink(ctx context.Context, agent string) (token string, expires time.Time, err error) {
	token, expires = newToken(), time.Now().Add(LinkLife)
	err = a.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		return a.q.CreateLoginLink(ctx, tx, digest(token), agent, expires)
	})
	return token, expires, err
}

// Redeem trades a login link's token for a session of [SessionLife], once. A link that is unknown, used
// or expired is a [fault.Unauthenticated] that says which.
func (a *Auth) Redeem(ctx context.Context, link string) (token string, expires time.Time, p Principal, err error) {
	token, expires = newToken(), time.Now().Add(SessionLife)
	row, err := a.q.RedeemLoginLink(ctx, a.db.Pool(), digest(link), digest(token), expires)
	switch {
	case err != nil:
		return "", time.Time{}, Principal{}, db.Explain(err)
	case row.Outcome == "ok":
		return token, expires, Principal{Agent: row.AgentID, Credential: session, hash: digest(token)}, nil
	}
	what := map[string]string{
		"used":    "this login link was used before",
		"expired": "this login link has expired",
	}[row.Outcome]
	if what == "" {
		what = "this login link is not known"
	}
	return "", time.Time{}, Principal{}, notLoggedIn(what)
}

// EndSession logs p's browser session out. It does nothing for other credentials, or a second time.
func (a *Auth) EndSession(ctx context.Context, p Principal) error {
	if p.Credential != session {
		return nil
	}
	return a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		return a.q.DeleteSession(ctx, tx, p.hash)
	})
}

// newToken is a random credential of 256 bits.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// digest is what the database keeps of a credential.
func digest(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

func notLoggedIn(what string) *fault.Error {
	return fault.New(fault.Unauthenticated, what, "get a new login link with: arbe login, or show another API key")
}
