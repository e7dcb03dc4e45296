package rpc

import (
	"context"
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/secret"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// secretService has no method that returns a value, and [wireSecret] is never given one.
type secretService struct{ Services }

func (s *secretService) SetSecret(ctx context.Context, req *arbev1.SetSecretRequest) (*arbev1.SetSecretResponse, error) {
	scope, err := s.authorizeSecret(ctx, req.GetHouseId(), req.GetName())
	if err != nil {
		return nil, err
	}
	tried, err := s.Models.TryKey(ctx, scope, req.GetName(), string(req.GetValue()), req.GetSkipCheck())
	if err != nil {
		return nil, err
	}
	account, err := s.tryAccount(ctx, scope, req)
	if err != nil {
		return nil, err
	}
	set, fresh, err := s.Secrets.Set(ctx, scope, req.GetName(), req.GetValue())
	if err != nil {
		return nil, err
	}
	check, err := s.keyCheck(ctx, scope, tried, set.Uses)
	if err != nil {
		return nil, err
	}
	if account != "" {
		check = &arbev1.KeyCheck{Tried: !req.GetSkipCheck(), Summary: account}
	}
	return &arbev1.SetSecretResponse{Secret: wireSecret(set), Created: fresh, Check: check}, nil
}

// tryAccount tests the key of a provider of sandboxes. The result is empty for any other secret.
func (s *secretService) tryAccount(ctx context.Context, scope db.Scope, req *arbev1.SetSecretRequest) (string, error) {
	if len(s.Boxes.AccountKeys(req.GetName())) == 0 {
		return "", nil
	}
	if !req.GetSkipCheck() {
		if err := s.Models.MayTry(scope); err != nil {
			return "", err
		}
	}
	return s.Boxes.TryAccount(ctx, scope, req.GetName(), string(req.GetValue()), req.GetSkipCheck())
}

// keyCheck reports the result of testing a key or a server, and who can use it now. It returns nil if nothing was tested.
func (s Services) keyCheck(ctx context.Context, scope db.Scope, tried model.Tried, uses []secret.Use) (*arbev1.KeyCheck, error) {
	summary := tried.String()
	if summary == "" {
		return nil, nil
	}
	h, err := s.Houses.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	summary += " The bots of " + shown(h.Name) + " can use it for all members"
	var by []string
	for _, u := range uses {
		if u.Kind != "model endpoint" {
			by = append(by, u.String())
		}
	}
	switch {
	case len(by) == 0:
		summary += "; none does yet."
	case len(by) > 5:
		summary += fmt.Sprintf("; now these do: %s and %d more.", strings.Join(by[:5], ", "), len(by)-5)
	default:
		summary += "; now these do: " + strings.Join(by, ", ") + "."
	}
	return &arbev1.KeyCheck{Tried: tried.Not == "", Models: int32(tried.Models()), Summary: summary}, nil
}

// authorizeSecret lets people of a house change a secret. Only owners may change a key of models or of a provider of
// sandboxes, because the holder of that account sees everything that bots read or commands do.
func (s *secretService) authorizeSecret(ctx context.Context, house, name string) (db.Scope, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(house))
	if err != nil {
		return scope, err
	}
	return scope, s.ownKeys(ctx, scope, name)
}

// ownKeys reports whether the caller may decide about secrets with these names. Only an owner may decide about keys of
// models, of providers of sandboxes and of GitHub Apps.
func (s Services) ownKeys(ctx context.Context, scope db.Scope, names ...string) error {
	keys, err := s.Models.Keys(ctx, scope.House, names...)
	kind := "models"
	if err == nil && len(keys) == 0 {
		keys, kind = s.Boxes.AccountKeys(names...), "a provider of sandboxes"
	}
	if err == nil && len(keys) == 0 {
		kind = "a GitHub App"
		keys, err = s.Boxes.AppKeys(ctx, scope, names...)
	}
	if err != nil || len(keys) == 0 {
		return err
	}
	if _, err := s.Auth.Authorize(ctx, auth.Own, auth.House(scope.House)); fault.CodeOf(err) == fault.Forbidden {
		return fault.Newf(fault.Forbidden, "ask an owner of the house", "the secret %s is a key of %s, which only owners may set, delete or give to commands", keys[0], kind)
	} else if err != nil {
		return err
	}
	return nil
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
	scope, err := s.authorizeSecret(ctx, req.GetHouseId(), req.GetName())
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
		SetByAgentId: s.SetBy, SetByName: shown(s.SetByName), Redacted: s.Redacted,
		Uses: each(s.Uses, func(u secret.Use) *arbev1.SecretUse { return &arbev1.SecretUse{Kind: u.Kind, Name: u.Name} })}
}
