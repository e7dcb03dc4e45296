package rpc

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/oidc"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// CallbackPath is the page to which a login provider sends browsers back, relative to the server's address.
const CallbackPath = "/login/callback"

func (s *agentService) BeginProviderLogin(ctx context.Context, req *arbev1.BeginProviderLoginRequest) (*arbev1.BeginProviderLoginResponse, error) {
	if s.Login == nil {
		return nil, noProvider()
	}
	var agent string
	if req.GetConnect() {
		scope, err := s.Auth.Authorize(ctx, auth.CreateCredential, auth.Account)
		if err != nil {
			return nil, err
		}
		agent = scope.Agent
	}
	attempt, err := s.Login.Begin(ctx, agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.BeginProviderLoginResponse{Url: attempt.URL, Secret: attempt.Secret, ExpiresAt: timestamp(attempt.Expires)}, nil
}

func (s *agentService) FinishProviderLogin(ctx context.Context, req *arbev1.FinishProviderLoginRequest) (*arbev1.FinishProviderLoginResponse, error) {
	if s.Login == nil {
		return nil, noProvider()
	}
	person, err := s.Login.Finish(ctx, req.GetSecret(), oidc.Answer{State: req.GetState(), Code: req.GetCode(), Issuer: req.GetIss(), Error: req.GetError()})
	if err != nil {
		return nil, err
	}
	identity := auth.Identity{Issuer: person.Issuer, Subject: person.Subject, Email: person.Email}
	agent, err := s.holder(ctx, person, identity)
	if err != nil {
		return nil, err
	}
	session, expires, err := s.Auth.LogIn(ctx, agent, identity)
	if err != nil {
		return nil, err
	}
	// Roles follow after the account is connected, and before anybody has the session. If they cannot be read or changed,
	// nobody gets the session, because a former member would keep the role.
	unknown, err := s.Houses.FollowGroups(ctx, agent, s.Login.Name(), person.Roles)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		s.Logger.WarnContext(ctx, "oidc_roles names houses that do not exist", "houses", unknown)
	}
	self, err := s.Houses.Agent(ctx, db.Scope{Agent: agent}, agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.FinishProviderLoginResponse{Session: session, ExpiresAt: timestamp(expires), Agent: wireAgent(self)}, nil
}

// holder returns the person whom an account logs in: the caller who connects it, the person who has used it before, or a
// new person.
func (s *agentService) holder(ctx context.Context, person oidc.Person, identity auth.Identity) (agent string, err error) {
	if person.Agent != "" {
		scope, err := s.Auth.Authorize(ctx, auth.CreateCredential, auth.Account)
		if err == nil && scope.Agent != person.Agent {
			err = fault.New(fault.Unauthenticated, "somebody else has logged in with this browser since", "begin again")
		}
		return scope.Agent, err
	}
	if agent, err = s.Auth.IdentityHolder(ctx, identity); err != nil || agent != "" {
		return agent, err
	}
	name := strings.Join(strings.Fields(person.Name), " ")
	if name == "" || len([]rune(name)) > 100 {
		name, _, _ = strings.Cut(person.Email, "@")
	}
	agent, err = s.Houses.CreatePersonWith(ctx, house.Person{Name: cmp.Or(name, "Somebody"), Unnamed: name == ""}, func(tx pgx.Tx, agent string) error { return s.Auth.ConnectTx(ctx, tx, agent, identity) })
	if fault.CodeOf(err) == fault.Exists { // another login of the same account came first
		return s.Auth.IdentityHolder(ctx, identity)
	}
	return agent, err
}

func noProvider() error {
	return fault.New(fault.Precondition, "this server has no login provider", "log in with a login link")
}
