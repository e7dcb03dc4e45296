package rpc

import (
	"context"
	"net/url"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/house"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type agentService struct{ Services }

// LoginPath returns the path and query of the page that redeems a login link, relative to the server's address.
func LoginPath(token string) string { return "/login?token=" + url.QueryEscape(token) }

func (s *agentService) WhoAmI(ctx context.Context, req *arbev1.WhoAmIRequest) (*arbev1.WhoAmIResponse, error) {
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return nil, err
	}
	self, err := s.Houses.Agent(ctx, db.Scope{Agent: who.Agent}, who.Agent)
	if err != nil {
		return nil, err
	}
	res := &arbev1.WhoAmIResponse{
		Agent: wireAgent(self), Credential: who.Credential, HouseId: who.House,
		ThreadId: who.Thread, Scopes: who.Scopes, ExpiresAt: timestamp(who.Expires), Unnamed: self.Unnamed,
	}
	if req.GetSessions() {
		if _, err := s.Auth.Authorize(ctx, auth.Own, auth.Account); err != nil {
			return nil, err
		}
		list, err := s.Auth.Sessions(ctx, who)
		if err != nil {
			return nil, err
		}
		res.Sessions = each(list, wireSession)
	}
	return res, nil
}

func (s *agentService) UpdateProfile(ctx context.Context, req *arbev1.UpdateProfileRequest) (*arbev1.UpdateProfileResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Account)
	if err != nil {
		return nil, err
	}
	renamed, err := s.Houses.Rename(ctx, scope, req.GetName())
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdateProfileResponse{Agent: wireAgent(renamed)}, nil
}

func (s *agentService) CreateAgent(ctx context.Context, req *arbev1.CreateAgentRequest) (*arbev1.CreateAgentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	if err := s.knows(req.GetRuntime()); err != nil {
		return nil, err
	}
	made, err := s.Bots.Create(ctx, scope, bot.Draft{Name: req.GetName(), Runtime: req.GetRuntime()})
	if err != nil {
		return nil, err
	}
	created, err := s.Houses.Agent(ctx, scope, made.ID)
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateAgentResponse{Agent: wireAgent(created)}, nil
}

func (s *agentService) GetAgent(ctx context.Context, req *arbev1.GetAgentRequest) (*arbev1.GetAgentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Houses.Agent(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetAgentResponse{Agent: wireAgent(got)}, nil
}

func (s *agentService) ListAgents(ctx context.Context, req *arbev1.ListAgentsRequest) (*arbev1.ListAgentsResponse, error) {
	rows, next, err := s.members(ctx, req.GetHouseId(), req.GetPageToken(), req.GetPageSize())
	if err != nil {
		return nil, err
	}
	agents := each(rows, func(m house.Member) *arbev1.Agent { return wireAgent(m.Agent) })
	return &arbev1.ListAgentsResponse{Agents: agents, NextPageToken: next}, nil
}

func (s *agentService) CreateLoginLink(ctx context.Context, _ *arbev1.CreateLoginLinkRequest) (*arbev1.CreateLoginLinkResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.CreateCredential, auth.Account)
	if err != nil {
		return nil, err
	}
	token, expires, err := s.Auth.CreateLink(ctx, scope.Agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateLoginLinkResponse{Path: LoginPath(token), ExpiresAt: timestamp(expires)}, nil
}

func (s *agentService) GetLoginLink(ctx context.Context, req *arbev1.GetLoginLinkRequest) (*arbev1.GetLoginLinkResponse, error) {
	who, err := s.Auth.Link(ctx, req.GetToken())
	if err != nil {
		return nil, err
	}
	self, err := s.Houses.Agent(ctx, db.Scope{Agent: who.Agent}, who.Agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.GetLoginLinkResponse{Agent: wireAgent(self)}, nil
}

func (s *agentService) RedeemLoginLink(ctx context.Context, req *arbev1.RedeemLoginLinkRequest) (*arbev1.RedeemLoginLinkResponse, error) {
	session, expires, who, err := s.Auth.Redeem(ctx, req.GetToken())
	if err != nil {
		return nil, err
	}
	self, err := s.Houses.Agent(ctx, db.Scope{Agent: who.Agent}, who.Agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.RedeemLoginLinkResponse{Session: session, ExpiresAt: timestamp(expires), Agent: wireAgent(self)}, nil
}

func (s *agentService) EndSession(ctx context.Context, req *arbev1.EndSessionRequest) (*arbev1.EndSessionResponse, error) {
	who, err := auth.PrincipalFrom(ctx)
	if req.GetWhich() != nil {
		if _, err := s.Auth.Authorize(ctx, auth.Own, auth.Account); err != nil {
			return nil, err
		}
		n, err := s.Auth.RevokeSession(ctx, who, req.GetId())
		return &arbev1.EndSessionResponse{Ended: int32(n)}, err
	}
	if err != nil { // the session has ended already, see authenticate
		return &arbev1.EndSessionResponse{}, nil
	}
	return &arbev1.EndSessionResponse{}, s.Auth.EndSession(ctx, who)
}
