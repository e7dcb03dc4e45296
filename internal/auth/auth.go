// Package auth says who is asking and whether they may: it knows people and bots, browser sessions, API
// keys and login links, and is the one place that answers "may this principal do this to that?".
//
// A door authenticates once per request ([Auth.Authenticate]) and puts the [Principal] into the context;
// an operation authorizes once ([Auth.May]) and gets the [db.Scope] its transactions look with. There is
// no other way to a scope, so an operation that forgets to ask sees nothing.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

// keyPrefix begins every API key, so that one is recognised where it should not be.
const keyPrefix = "arbe_"

// Auth answers who and whether. It is safe for concurrent use.
type Auth struct {
	db *db.DB
	q  *query.Queries
}

// New makes an Auth over a database.
func New(d *db.DB) *Auth { return &Auth{db: d, q: query.New()} }

// Principal is who asks.
type Principal struct {
	// Agent is the id of the person or bot.
	Agent string
	// Credential is what they showed: "session" or "api_key".
	Credential string
	// House is the one house the credential is limited to; empty when it is not limited.
	House string

	session []byte // the hash of the session shown, to end it
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

// Authenticate tells whose credential token is: a browser session or an API key. An unknown, expired or
// revoked one is a [fault.Unauthenticated] that says which.
func (a *Auth) Authenticate(ctx context.Context, token string) (Principal, error) {
	hash := digest(token)
	row, err := a.q.Authenticate(ctx, a.db.Pool(), hash)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Principal{}, notLoggedIn("this credential is not known")
	case err != nil:
		return Principal{}, db.Explain(err)
	case row.Standing != "ok":
		return Principal{}, notLoggedIn("this credential is " + row.Standing)
	}
	p := Principal{Agent: row.AgentID, Credential: row.Credential, House: row.HouseID}
	if p.Credential == "session" {
		p.session = hash
	}
	return p, nil
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
func (a *Auth) Redeem(ctx context.Context, link string) (session string, expires time.Time, p Principal, err error) {
	session, expires = newToken(), time.Now().Add(SessionLife)
	row, err := a.q.RedeemLoginLink(ctx, a.db.Pool(), digest(link), digest(session), expires)
	switch {
	case err != nil:
		return "", time.Time{}, Principal{}, db.Explain(err)
	case row.Outcome == "ok":
		return session, expires, Principal{Agent: row.AgentID, Credential: "session", session: digest(session)}, nil
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
	if p.session == nil {
		return nil
	}
	return a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		return a.q.DeleteSession(ctx, tx, p.session)
	})
}

// ReplaceKey makes an API key for an agent over all its houses, and revokes the agent's earlier keys of
// the same name. The key is told this once; the database keeps its hash.
func (a *Auth) ReplaceKey(ctx context.Context, agent, name string) (key string, err error) {
	random := make([]byte, 32)
	rand.Read(random)
	key = keyPrefix + hex.EncodeToString(random)
	err = a.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		if err := a.q.RevokeAPIKeys(ctx, tx, agent, name); err != nil {
			return err
		}
		return a.q.CreateAPIKey(ctx, tx, query.CreateAPIKeyParams{AgentID: agent, Name: name, Hash: digest(key)})
	})
	return key, err
}

// newToken is a random credential of 256 bits.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// digest is what the database keeps of a credential.
func digest(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

func notLoggedIn(what string) *fault.Error {
	return fault.New(fault.Unauthenticated, what, "get a new login link with: arbe login")
}
