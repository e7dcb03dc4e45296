package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/secret"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// secretService has no method that returns a value, and [wireSecret] is given none.
type secretService struct{ Services }

func (s *secretService) SetSecret(ctx context.Context, req *arbev1.SetSecretRequest) (*arbev1.SetSecretResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	set, fresh, err := s.Secrets.Set(ctx, scope, req.GetName(), req.GetValue(), func(value string) error { return model.CheckSecret(req.GetName(), value) })
	if err != nil {
		return nil, err
	}
	return &arbev1.SetSecretResponse{Secret: wireSecret(set), Created: fresh}, nil
}

func (s *secretService) ListSecrets(ctx context.Context, req *arbev1.ListSecretsRequest) (*arbev1.ListSecretsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	list, err := s.Secrets.List(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.ListSecretsResponse{Secrets: each(list, wireSecret)}, nil
}

func (s *secretService) DeleteSecret(ctx context.Context, req *arbev1.DeleteSecretRequest) (*arbev1.DeleteSecretResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.DeleteSecretResponse{}, s.Secrets.Delete(ctx, scope, req.GetName(), req.GetForce())
}

func (s *secretService) RotateSecretKey(ctx context.Context, req *arbev1.RotateSecretKeyRequest) (*arbev1.RotateSecretKeyResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	values, err := s.Secrets.Rotate(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.RotateSecretKeyResponse{Values: int32(values)}, nil
}

func wireSecret(s secret.Secret) *arbev1.Secret {
	return &arbev1.Secret{Id: s.ID, Name: s.Name, CreatedAt: timestamp(s.CreatedAt), SetAt: timestamp(s.SetAt), UsedAt: timestamp(s.UsedAt),
		SetByAgentId: s.SetBy, SetByName: s.SetByName, Redacted: s.Redacted,
		Uses: each(s.Uses, func(u secret.Use) *arbev1.SecretUse { return &arbev1.SecretUse{Kind: u.Kind, Name: u.Name} })}
}
