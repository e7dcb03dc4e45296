package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type environmentService struct{ Services }

func (s *environmentService) CreateEnvironment(ctx context.Context, req *arbev1.CreateEnvironmentRequest) (*arbev1.CreateEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	made, err := s.Environments.CreateEnvironment(ctx, scope, req.GetName(), recipe(req.GetConfig()))
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateEnvironmentResponse{Environment: wireEnvironment(made)}, nil
}

func (s *environmentService) GetEnvironment(ctx context.Context, req *arbev1.GetEnvironmentRequest) (*arbev1.GetEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Environment(req.GetId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Environments.Environment(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetEnvironmentResponse{Environment: wireEnvironment(got)}, nil
}

func (s *environmentService) ListEnvironments(ctx context.Context, req *arbev1.ListEnvironmentsRequest) (*arbev1.ListEnvironmentsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	after, err := environmentList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Environments.ListEnvironments(ctx, scope, after.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(environmentList, rows, size, func(e sandbox.Environment) bookmark { return bookmark{Time: e.CreatedAt, ID: e.ID} })
	return &arbev1.ListEnvironmentsResponse{Environments: each(rows, wireEnvironment), NextPageToken: next}, nil
}

func (s *environmentService) UpdateEnvironment(ctx context.Context, req *arbev1.UpdateEnvironmentRequest) (*arbev1.UpdateEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if err != nil {
		return nil, err
	}
	var r *sandbox.Recipe
	if req.GetConfig() != nil {
		set := recipe(req.GetConfig())
		r = &set
	}
	changed, err := s.Environments.UpdateEnvironment(ctx, scope, req.GetId(), req.Name, r)
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdateEnvironmentResponse{Environment: wireEnvironment(changed)}, nil
}

func (s *environmentService) DeleteEnvironment(ctx context.Context, req *arbev1.DeleteEnvironmentRequest) (*arbev1.DeleteEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound { // deleted already, or in a house that the caller must not learn of
		return &arbev1.DeleteEnvironmentResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	return &arbev1.DeleteEnvironmentResponse{}, s.Environments.DeleteEnvironment(ctx, scope, req.GetId())
}
