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
	"github.com/arbe-dev/arbe/internal/fault"
)

// TokenTTL is how long a thread token is valid.
const TokenTTL = 2 * time.Hour

// The scopes of a thread token.
const (
	// StreamRead allows reading the thread and reading and following its log.
	StreamRead = "stream:read"
	// StreamWrite allows appending to the log.
	StreamWrite = "stream:write"
	// ModelCall allows calling models in the name of a run. Only the token of a run has it.
	ModelCall = "model:call"
)

// Scopes are the scopes that a thread token may be given.
var Scopes = []string{StreamRead, StreamWrite}

// runScopes are the scopes of a run's token.
var runScopes = []string{ModelCall, StreamRead, StreamWrite}

const issuer = "arbe"

// ThreadToken is a token for an agent in one thread.
type ThreadToken struct {
	// Token is the bearer token.
	Token                string
	House, Thread, Agent string
	Scopes               []string
	ExpiresAt            time.Time
}

// claims are the contents of a token. Beside the registered claims they say where the token is valid, for what, and
// which facts must still be true.
type claims struct {
	jwt.RegisteredClaims
	House  string   `json:"house"`
	Thread string   `json:"thread"`
	Scopes []string `json:"scopes"`
	// Epoch is the thread's token epoch when the token was created. Joined is when the agent joined the house, in
	// microseconds.
	Epoch  int64 `json:"epoch"`
	Joined int64 `json:"joined"`
	// Maker is the owner who created the token for a bot. The token ends when the maker is no longer an owner. It is
	// empty if the holder created it.
	Maker string `json:"maker,omitempty"`
	// Run is the epoch of the run that the token belongs to; 0 for other tokens. The thread's token epoch changes when
	// a run ends, so no token outlasts its run.
	Run int64 `json:"run,omitempty"`

	keyID string // the id of the key that signed the token
}

// CreateThreadToken creates a token with which agent may do what scopes allow in one thread of the scope's house; no
// scopes means all. It is valid for at most [TokenTTL] and only while the thread runs: while it is idle or running if a
// bot drives it, otherwise while it is open. The agent must be the scope's agent or a bot of the house. If the thread
// does not run, the error is a [fault.Precondition].
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
		if err := a.checkHolder(ctx, tx, scope, agent); err != nil {
			return err
		}
		if agent != scope.Agent {
			c.Maker = scope.Agent
		}
		ground, err := a.q.TokenFacts(ctx, tx, agent, thread)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return missing(Thread(thread))
		case err != nil:
			return err
		case !ground.Runs:
			return fault.Newf(fault.Precondition, "start the thread again first", "the thread is %s, so no tokens can be created for it", ground.Status)
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

// CreateRunToken creates the token with which the runner of a run reads and appends to the log of its thread and calls
// models, in the name of the bot that drives the thread. It is valid for at most [TokenTTL] and only while the run
// continues; see [Auth.RenewRunToken]. If the run has ended, the error is a [fault.Precondition].
func (a *Auth) CreateRunToken(ctx context.Context, house, thread, bot string, epoch int64) (ThreadToken, error) {
	c := claims{House: house, Thread: thread, Scopes: runScopes, Run: epoch}
	err := a.db.In(ctx, db.Scope{House: house, Agent: bot}, func(tx pgx.Tx) error {
		ground, err := a.q.TokenFacts(ctx, tx, bot, thread)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return missing(Thread(thread))
		case err != nil:
			return err
		case ground.Status != "running" || ground.RunEpoch != epoch || db.Zero(ground.AgentID) != bot:
			return fault.New(fault.Precondition, "the run is over", "continue the thread")
		}
		c.Epoch, c.Joined = ground.TokenEpoch, ground.JoinedAt.UnixMicro()
		return nil
	})
	if err != nil {
		return ThreadToken{}, err
	}
	c.Subject = bot
	return a.sign(ctx, c)
}

// RenewRunToken returns a new token for the run whose token p shows, once that token is past half its life. Before
// that, and for every other credential, it returns an empty string. Doors send the new token with their answers.
func (a *Auth) RenewRunToken(ctx context.Context, p Principal) (string, error) {
	if p.Run == 0 || time.Until(p.Expires) > TokenTTL/2 {
		return "", nil
	}
	t, err := a.sign(ctx, *p.token)
	return t.Token, err
}

// RenewThreadToken creates another token with the same rights as the one that p shows, which stays valid until it
// expires. Other credentials get a [fault.Forbidden].
func (a *Auth) RenewThreadToken(ctx context.Context, p Principal) (ThreadToken, error) {
	if p.token == nil {
		return ThreadToken{}, fault.New(fault.Forbidden, "only a thread token can be renewed, by its holder", "create one with: arbe token create")
	}
	return a.sign(ctx, *p.token)
}

// sign creates a token with these claims that is valid from now on.
func (a *Auth) sign(ctx context.Context, c claims) (ThreadToken, error) {
	key, id, err := a.signing.newest(ctx)
	if err == nil && key == nil { // no server has created one yet
		if err = a.RotateOldSigningKeys(ctx); err == nil {
			key, id, err = a.signing.newest(ctx)
		}
	}
	if err != nil {
		return ThreadToken{}, err
	}
	now := time.Now()
	c.Issuer, c.ID, c.IssuedAt, c.ExpiresAt = issuer, uuid.NewString(), jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(TokenTTL))
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
	token.Header["kid"] = id
	text, err := token.SignedString(key)
	return ThreadToken{Token: text, House: c.House, Thread: c.Thread, Agent: c.Subject, Scopes: c.Scopes, ExpiresAt: c.ExpiresAt.Time}, err
}

// looksSigned distinguishes thread tokens from all other credentials by their dots, because the others contain none.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }

// parser accepts only our algorithm, because a forged token could otherwise name a weaker one, or none.
var parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(issuer), jwt.WithExpirationRequired())

// authenticateToken is [Auth.Authenticate] for thread tokens.
func (a *Auth) authenticateToken(ctx context.Context, token string) (Principal, error) {
	word := tokenWord(digest(token))
	c, verified := lookUp[*claims](a.facts, word)
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
	status, err := askOne(ctx, a, word, c, a.tokens)
	if err == nil {
		err = c.counts(status.status)
	}
	if err != nil {
		return Principal{}, err
	}
	a.facts.keep(asked, word, c)
	p.role = status.role
	return p, nil
}

// verify reads a token and checks its signature. What a token says never changes; whether it is valid may.
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

func expired(thread string) error {
	return fault.Newf(fault.Unauthenticated, "ask for a new token; renew it before it expires, with RenewThreadToken or arbe token renew",
		"this token of thread %q has expired", thread).WithReason(fault.TokenExpired)
}

// counts returns an error that says why a token with this status is no longer valid; nil if it is. A run's token is refused as
// one that may do nothing any more: its holder must not ask for another.
func (c *claims) counts(status string) error {
	var why string
	switch status {
	case "ok":
		return nil
	case "unknown": // its signing key was deleted
		return ended("")
	case "deleted":
		why = "the thread was deleted"
	case "left":
		why = "its agent left the house"
	case "orphaned":
		why = "the owner who created it left the house, or is no owner any more"
	case "revoked":
		why = "a member revoked it, or the thread has ended since"
	default:
		why = "the thread is " + status
	}
	if c.Run != 0 {
		return fault.Newf(fault.Forbidden, "stop the agent", "this run is over: the token of run %d of thread %q is no longer valid, because %s", c.Run, c.Thread, why).WithReason(fault.RunEnded)
	}
	return fault.Newf(fault.Unauthenticated, "ask for a new one when the thread runs again", "this token of thread %q is no longer valid: %s", c.Thread, why).WithReason(fault.TokenExpired)
}
