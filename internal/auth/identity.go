package auth

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Identity is a person's account at a login provider. Issuer and Subject identify it; Email is its verified address, which never
// does.
type Identity struct{ Issuer, Subject, Email string }

// IdentityHolder returns the agent that an account logs in, or "" if it logs in nobody.
func (a *Auth) IdentityHolder(ctx context.Context, i Identity) (agent string, err error) {
	agent, err = a.q.LoginIdentityHolder(ctx, a.db.Pool(), i.Issuer, i.Subject)
	return agent, db.Explain(err)
}

// ConnectTx records that an account logs an agent in, in the caller's transaction, whose scope must be that agent's. If the
// account already does, it updates the address. An account logs in one person, and a person has one account at a provider:
// for any other the error is a [fault.Exists].
func (a *Auth) ConnectTx(ctx context.Context, tx pgx.Tx, agent string, i Identity) error {
	n, err := a.q.SaveLoginIdentity(ctx, tx, query.SaveLoginIdentityParams{Issuer: i.Issuer, Subject: i.Subject, AgentID: agent, Email: i.Email})
	switch {
	case db.Violates(err, "login_identities_issuer_agent_id_key"):
		return fault.New(fault.Exists, "you are already connected to another account there", "log in there with that account").Because(err)
	case err == nil && n == 0:
		return fault.New(fault.Exists, "this account already belongs to another person", "log out, and log in with it")
	}
	return err
}

// LogIn connects an account to an agent, as [Auth.ConnectTx] does, and starts a session.
func (a *Auth) LogIn(ctx context.Context, agent string, i Identity) (token string, expires time.Time, err error) {
	err = a.db.In(ctx, db.Scope{Agent: agent}, func(tx pgx.Tx) error {
		if err := a.ConnectTx(ctx, tx, agent, i); err != nil {
			return err
		}
		token, expires, err = a.StartSessionTx(ctx, tx, agent)
		return err
	})
	return token, expires, err
}
