package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type credentialService struct{ Services }

// mayGive authorizes the caller to create a credential for an agent, and returns the agent's id. An empty agent is the
// caller.
func (s *credentialService) mayGive(ctx context.Context, target auth.Target, agent string) (db.Scope, string, error) {
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return db.Scope{}, "", err
	}
	action := auth.CreateBotCredential
	if agent == "" || agent == who.Agent {
		action, agent = auth.CreateCredential, who.Agent
	}
	scope, err := s.Auth.Authorize(ctx, action, target)
	return scope, agent, err
}

func (s *credentialService) CreateAPIKey(ctx context.Context, req *arbev1.CreateAPIKeyRequest) (*arbev1.CreateAPIKeyResponse, error) {
	scope, agent, err := s.mayGive(ctx, auth.House(req.GetHouseId()), req.GetAgentId())
	if err != nil {
		return nil, err
	}
	key, made, err := s.Auth.CreateKey(ctx, scope, auth.KeyDraft{ID: req.GetId(), Agent: agent, Name: req.GetName(), ExpiresAt: timeOf(req.GetExpiresAt())})
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateAPIKeyResponse{ApiKey: wireAPIKey(made), Key: key}, nil
}

func (s *credentialService) ListAPIKeys(ctx context.Context, req *arbev1.ListAPIKeysRequest) (*arbev1.ListAPIKeysResponse, error) {
	action, target := auth.Read, auth.House(req.GetHouseId())
	if req.GetHouseId() == "" {
		action, target = auth.Own, auth.Account
	}
	scope, err := s.Auth.Authorize(ctx, action, target)
	if err != nil {
		return nil, err
	}
	after, err := keyList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Auth.Keys(ctx, scope, after.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(keyList, rows, size, func(k auth.APIKey) bookmark { return bookmark{Time: k.CreatedAt, ID: k.ID} })
	return &arbev1.ListAPIKeysResponse{ApiKeys: each(rows, wireAPIKey), NextPageToken: next}, nil
}

func (s *credentialService) RevokeAPIKey(ctx context.Context, req *arbev1.RevokeAPIKeyRequest) (*arbev1.RevokeAPIKeyResponse, error) {
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return nil, err
	}
	// Every key may revoke itself, even if it may not revoke others.
	if itself, err := s.Auth.RevokeShownKey(ctx, who, req.GetId()); itself || err != nil || req.GetId() == "" {
		return &arbev1.RevokeAPIKeyResponse{}, err
	}
	scope, err := s.Auth.Authorize(ctx, auth.RevokeCredential, auth.Key(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound && s.revokedForAllHouses(ctx, req.GetId()) {
		return &arbev1.RevokeAPIKeyResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &arbev1.RevokeAPIKeyResponse{}, s.Auth.RevokeKey(ctx, scope, req.GetId())
}

// revokedForAllHouses revokes a key of the caller that is valid for all their houses, and reports whether there is such a
// key. It belongs to no house, so [auth.Key] does not find it. Like every change of the caller's account, this requires an
// unlimited credential.
func (s *credentialService) revokedForAllHouses(ctx context.Context, id string) bool {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.Account)
	if err != nil {
		return false
	}
	found, err := s.Auth.RevokeKeyForAllHouses(ctx, scope, id)
	return err == nil && found
}

func (s *credentialService) CreateThreadToken(ctx context.Context, req *arbev1.CreateThreadTokenRequest) (*arbev1.CreateThreadTokenResponse, error) {
	scope, agent, err := s.mayGive(ctx, auth.Thread(req.GetThreadId()), req.GetAgentId())
	if err != nil {
		return nil, err
	}
	made, err := s.Auth.CreateThreadToken(ctx, scope, req.GetThreadId(), agent, req.GetScopes())
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateThreadTokenResponse{Token: wireThreadToken(made)}, nil
}

func (s *credentialService) RenewThreadToken(ctx context.Context, _ *arbev1.RenewThreadTokenRequest) (*arbev1.RenewThreadTokenResponse, error) {
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return nil, err
	}
	made, err := s.Auth.RenewThreadToken(ctx, who)
	if err != nil {
		return nil, err
	}
	return &arbev1.RenewThreadTokenResponse{Token: wireThreadToken(made)}, nil
}

func (s *credentialService) RevokeThreadTokens(ctx context.Context, req *arbev1.RevokeThreadTokensRequest) (*arbev1.RevokeThreadTokensResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.RevokeThreadTokensResponse{}, s.Threads.RevokeTokens(ctx, scope, req.GetThreadId())
}
