package rpc

import (
	"context"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// JoinPath returns the path and query of the page that accepts an invite, relative to the server's address.
func JoinPath(token string) string { return "/join?token=" + url.QueryEscape(token) }

func (s *houseService) UpdateMember(ctx context.Context, req *arbev1.UpdateMemberRequest) (*arbev1.UpdateMemberResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Govern, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	changed, err := s.Houses.SetRole(ctx, scope, req.GetAgentId(), req.GetRole(), req.GetEtag())
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdateMemberResponse{Member: wireMember(changed)}, nil
}

func (s *houseService) RemoveMember(ctx context.Context, req *arbev1.RemoveMemberRequest) (*arbev1.RemoveMemberResponse, error) {
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return nil, err
	}
	action := auth.Govern
	if req.GetAgentId() == who.Agent {
		action = auth.Leave
	}
	scope, err := s.Auth.Authorize(ctx, action, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	_, err = s.removeMember(ctx, scope, req.GetAgentId())
	return &arbev1.RemoveMemberResponse{}, err
}

// removeMember removes a member from the scope's house, and stops a bot's turns. It returns how many turns were in progress.
func (s *Services) removeMember(ctx context.Context, scope db.Scope, agent string) (stopped int, err error) {
	var end func(context.Context) error
	err = s.Houses.Remove(ctx, scope, agent, func(tx pgx.Tx) error {
		active, ends, err := s.Dispatcher.StopBotTx(ctx, tx, scope, agent)
		stopped, end = dispatch.AtWork(active), ends
		return err
	})
	if err != nil {
		return 0, err
	}
	// The member is removed even if this fails. A server that reaches a turn later ends it then.
	if err := end(context.WithoutCancel(ctx)); err != nil {
		s.Logger.WarnContext(ctx, "the turns of a removed bot wait for their end", "error", fault.From(err).Detail())
	}
	return stopped, nil
}

func (s *houseService) CreateInvite(ctx context.Context, req *arbev1.CreateInviteRequest) (*arbev1.CreateInviteResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Invite, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	token, made, err := s.Houses.CreateInvite(ctx, scope, req.GetRole(), req.GetNote(), req.GetExpiresIn().AsDuration())
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateInviteResponse{Invite: wireInvite(made), Path: JoinPath(token)}, nil
}

func (s *houseService) ListInvites(ctx context.Context, req *arbev1.ListInvitesRequest) (*arbev1.ListInvitesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	after, err := inviteList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Houses.Invites(ctx, scope, after.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(inviteList, rows, size, func(i house.Invite) bookmark { return bookmark{Time: i.CreatedAt, ID: i.ID} })
	return &arbev1.ListInvitesResponse{Invites: each(rows, wireInvite), NextPageToken: next}, nil
}

func (s *houseService) RevokeInvite(ctx context.Context, req *arbev1.RevokeInviteRequest) (*arbev1.RevokeInviteResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.RevokeInviteResponse{}, s.Houses.RevokeInvite(ctx, scope, req.GetId())
}

func (s *houseService) GetInvite(ctx context.Context, req *arbev1.GetInviteRequest) (*arbev1.GetInviteResponse, error) {
	got, err := s.Houses.Invitation(ctx, req.GetToken())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetInviteResponse{HouseId: got.House, HouseName: shown(got.HouseName), Role: got.Role, InvitedBy: shown(got.InvitedBy), ExpiresAt: timestamp(got.ExpiresAt)}, nil
}

func (s *houseService) AcceptInvite(ctx context.Context, req *arbev1.AcceptInviteRequest) (*arbev1.AcceptInviteResponse, error) {
	if _, err := auth.PrincipalFrom(ctx); err != nil {
		return s.acceptAsNew(ctx, req)
	}
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Account)
	if err != nil {
		return nil, err
	}
	if req.GetName() != "" {
		return nil, fault.New(fault.Invalid, "name: the caller already has a name", "leave the name out, or leave the credential out to join as a new person")
	}
	joined, err := s.Houses.Join(ctx, scope.Agent, req.GetToken())
	if err != nil {
		return nil, err
	}
	self, err := s.Houses.Agent(ctx, scope, scope.Agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.AcceptInviteResponse{House: wireHouse(joined), Agent: wireAgent(self)}, nil
}

// acceptAsNew accepts an invite for a person who has no credential, and creates that person.
func (s *houseService) acceptAsNew(ctx context.Context, req *arbev1.AcceptInviteRequest) (*arbev1.AcceptInviteResponse, error) {
	var session string
	var expires time.Time
	joined, person, err := s.Houses.JoinAsNew(ctx, req.GetToken(), req.GetName(), func(tx pgx.Tx, agent string) (err error) {
		session, expires, err = s.Auth.StartSessionTx(ctx, tx, agent)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.AcceptInviteResponse{House: wireHouse(joined), Agent: wireAgent(person), Session: session, SessionExpiresAt: timestamp(expires)}, nil
}
