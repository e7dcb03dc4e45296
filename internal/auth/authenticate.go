package auth

import (
	"context"
	"log/slog"
	"time"

	"errors"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/db/query"
)

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
	c, known := lookUp[credential](a.facts, credentialTopic(hash))
	if !known || c.ended(time.Now()) {
		var err error
		if c, err = askOne(ctx, a, credentialTopic(hash), hash, a.credentials); err != nil {
			return Principal{}, err
		}
	}
	if c.status != "ok" {
		return Principal{}, ended(c.status)
	}
	if c.kind == apiKey {
		a.recordUse(hash, "")
	}
	return Principal{Agent: c.agent, Credential: c.kind, Key: c.name, House: c.house, hash: hash, until: c.until}, nil
}

// Marked returns the principal of a mark, as [Auth.Authenticate] does for the credential itself. The caller must know that
// this server issued the mark, and for which purpose.
func (a *Auth) Marked(ctx context.Context, mark []byte) (Principal, error) {
	if len(mark) == 0 {
		return Principal{}, notLoggedIn("there is no credential")
	}
	return a.shown(ctx, mark)
}

// looksSigned distinguishes thread tokens from all other credentials by their dots, because the others contain none.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }

// parser accepts only our algorithm, because a forged token could otherwise name a weaker one, or none. Its base64 is strict,
// so that no two texts are the same token.
var parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(), jwt.WithIssuer(issuer), jwt.WithExpirationRequired())

// authenticateToken is [Auth.Authenticate] for thread tokens.
func (a *Auth) authenticateToken(ctx context.Context, token string) (Principal, error) {
	topic := tokenTopic(digest(token))
	c, verified := lookUp[*claims](a.facts, topic)
	if !verified {
		var err error
		if c, err = a.verify(ctx, token); err != nil {
			return Principal{}, err
		}
	}
	if !time.Now().Before(c.ExpiresAt.Time) {
		return Principal{}, expired(c.Thread)
	}
	p := Principal{
		Agent: c.Subject, Credential: threadToken, House: c.House, Thread: c.Thread, Scopes: c.Scopes, Expires: c.ExpiresAt.Time,
		Run: c.Run, token: c, until: c.ExpiresAt.Time,
	}
	var known bool
	if p.role, known = a.heldToken(c); known && verified {
		return p, nil
	}
	asked := a.facts.moment()
	status, err := askOne(ctx, a, topic, c, a.tokens)
	if err == nil {
		err = c.counts(status.status)
	}
	if err != nil {
		return Principal{}, err
	}
	a.facts.keep(asked, topic, c)
	p.role = status.role
	return p, nil
}

// verify parses a token and checks its signature. The content of a token never changes, but its validity may.
func (a *Auth) verify(ctx context.Context, token string) (*claims, error) {
	var c claims
	var failed error // of looking up the key
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		c.keyID, _ = t.Header["kid"].(string)
		var key []byte
		if key, failed = a.signing.get(ctx, c.keyID); failed == nil && key == nil {
			failed = ended("")
		}
		return key, failed
	})
	switch {
	case failed != nil:
		return nil, failed
	case errors.Is(err, jwt.ErrTokenExpired): // only reported if the signature is valid
		return nil, expired(c.Thread)
	case err != nil:
		return nil, ended("")
	}
	return &c, nil
}
