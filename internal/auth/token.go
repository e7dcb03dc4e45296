package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// TokenLife is how long a thread's token is good for.
const TokenLife = 2 * time.Hour

// The scopes of a thread's token.
const (
	// StreamRead lets it see the thread, and read and follow its log.
	StreamRead = "stream:read"
	// StreamWrite lets it append to the log.
	StreamWrite = "stream:write"
)

// Scopes are all scopes there are.
var Scopes = []string{StreamRead, StreamWrite}

const issuer = "arbe"

// ThreadToken is a token that was made for a thread's agent.
type ThreadToken struct {
	// Token is shown as any bearer token.
	Token                string
	House, Thread, Agent string
	Scopes               []string
	ExpiresAt            time.Time
}

// claims are what a token says: beside the registered ones where it counts, for what, and what must still be so.
type claims struct {
	jwt.RegisteredClaims
	House  string   `json:"house"`
	Thread string   `json:"thread"`
	Scopes []string `json:"scopes"`
	// Epoch is the thread's when the token was made; Joined since when the agent is in the house, in microseconds.
	Epoch  int64 `json:"epoch"`
	Joined int64 `json:"joined"`
}

// CreateThreadToken makes a token with which agent may do what scopes say (none says all) in one thread of the
// scope's house, for [TokenLife] at most and as long as the thread runs: idle or running when a bot drives it,
// else open. The agent is the scope's own, or a bot of the house. A thread that does not run is a
// [fault.Precondition].
func (a *Auth) CreateThreadToken(ctx context.Context, scope db.Scope, thread, agent string, scopes []string) (ThreadToken, error) {
	if len(scopes) == 0 {
		scopes = Scopes
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes, s) {
			return ThreadToken{}, fault.Newf(fault.Invalid, "use "+strings.Join(Scopes, " or ")+", or both", "scopes: there is no scope %.40q", s)
		}
	}
	c := claims{House: scope.House, Thread: thread, Scopes: slices.Compact(slices.Sorted(slices.Values(scopes)))}
	err := a.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := a.equips(ctx, tx, scope, agent); err != nil {
			return err
		}
		ground, err := a.q.TokenGround(ctx, tx, agent, thread)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return missing(Thread(thread))
		case err != nil:
			return err
		case !ground.Runs:
			return fault.Newf(fault.Precondition, "have it run again first", "the thread is %s: it gives out no tokens", ground.Status)
		}
		c.Epoch, c.Joined = ground.TokenEpoch, ground.JoinedAt.UnixMicro()
		return nil
	})
	if err != nil {
		return ThreadToken{}, err
	}
	c.Subject = agent
	return a.sign(ctx, c)
}

// RenewThreadToken makes another token like the one that p showed, which goes on until it expires. Who showed
// something else gets a [fault.Forbidden].
func (a *Auth) RenewThreadToken(ctx context.Context, p Principal) (ThreadToken, error) {
	if p.token == nil {
		return ThreadToken{}, fault.New(fault.Forbidden, "only a thread's token can be renewed, by its holder", "make one with: arbe token create")
	}
	return a.sign(ctx, *p.token)
}

// sign makes a token of claims, from now on.
func (a *Auth) sign(ctx context.Context, c claims) (ThreadToken, error) {
	key, id, err := a.signing.newest(ctx)
	if err == nil && key == nil { // nobody made one yet
		if err = a.TurnSigningKeys(ctx); err == nil {
			key, id, err = a.signing.newest(ctx)
		}
	}
	if err != nil {
		return ThreadToken{}, err
	}
	now := time.Now()
	c.Issuer, c.ID, c.IssuedAt, c.ExpiresAt = issuer, uuid.NewString(), jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(TokenLife))
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
	token.Header["kid"] = id
	text, err := token.SignedString(key)
	return ThreadToken{Token: text, House: c.House, Thread: c.Thread, Agent: c.Subject, Scopes: c.Scopes, ExpiresAt: c.ExpiresAt.Time}, err
}

// looksSigned tells tokens of threads from all other credentials, which have no dots.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }

var parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(issuer), jwt.WithExpirationRequired())

// authenticateToken is [Auth.Authenticate] for tokens of threads.
func (a *Auth) authenticateToken(ctx context.Context, token string) (Principal, error) {
	var c claims
	var keyID string
	var failed error // to find the key
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		keyID, _ = t.Header["kid"].(string)
		var key []byte
		if key, failed = a.signing.get(ctx, keyID); failed == nil && key == nil {
			failed = ended("")
		}
		return key, failed
	})
	switch {
	case failed != nil:
		return Principal{}, failed
	case errors.Is(err, jwt.ErrTokenExpired): // told only when the signature is right
		return Principal{}, expired(c.Thread)
	case err != nil:
		return Principal{}, ended("")
	}
	p := Principal{
		Agent: c.Subject, Credential: threadToken, House: c.House, Thread: c.Thread, Scopes: c.Scopes, Expires: c.ExpiresAt.Time,
		token: &c, keyID: keyID,
	}
	row, err := a.q.ThreadToken(ctx, a.db.Pool(), query.ThreadTokenParams{
		KeyID: keyID, HouseID: c.House, ThreadID: c.Thread, AgentID: c.Subject, Epoch: c.Epoch, JoinedAt: time.UnixMicro(c.Joined),
	})
	if err != nil {
		return Principal{}, db.Explain(err)
	}
	p.role = row.Role
	return p, stands(c.Thread, row.Standing)
}

func expired(thread string) error {
	return fault.Newf(fault.Unauthenticated, "renew a token before it expires, with RenewThreadToken or arbe token renew; now ask for another one",
		"this token of thread %q has expired", thread)
}

// stands says why a token of a thread does not count any more.
func stands(thread, standing string) error {
	var why string
	switch standing {
	case "ok":
		return nil
	case "unknown": // its key was dropped
		return ended("")
	case "deleted":
		why = "the thread was deleted"
	case "left":
		why = "its agent left the house"
	case "revoked":
		why = "a member revoked it, or the thread was ended since"
	default:
		why = "the thread is " + standing
	}
	return fault.Newf(fault.Unauthenticated, "ask for a new one when the thread runs again", "this token of thread %q is revoked: %s", thread, why)
}
