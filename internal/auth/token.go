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

const issuer = "arbe"

// ThreadToken is a token for an agent in one thread.
type ThreadToken struct {
	// Token is the bearer token.
	Token                string
	House, Thread, Agent string
	Scopes               []string
	ExpiresAt            time.Time
}

// CreateThreadToken creates a token with which agent may do what scopes allow in one thread of the scope's house; no
// scopes means all. It is valid for at most [TokenTTL] and only while the thread runs: while it is idle or running if a
// bot drives it, otherwise while it is open. The agent must be the scope's agent or a bot of the house. If the thread
// does not run, the error is a [fault.Precondition].
func (a *Auth) CreateThreadToken(ctx context.Context, scope db.Scope, thread, agent string, scopes []string) (ThreadToken, error) {
	scopes, err := cleanScopes(scopes)
	if err != nil {
		return ThreadToken{}, err
	}
	c := claims{House: scope.House, Thread: thread, Scopes: scopes}
	err = a.db.In(ctx, scope, func(tx pgx.Tx) error {
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

// cleanScopes checks scopes, and returns them in their order. None means all.
func cleanScopes(scopes []string) ([]string, error) {
	if len(scopes) == 0 {
		scopes = Scopes
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes, s) {
			return nil, fault.Newf(fault.Invalid, "use "+strings.Join(Scopes, " or ")+", or both", "scopes: there is no scope %.40q", s)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(scopes))), nil
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
