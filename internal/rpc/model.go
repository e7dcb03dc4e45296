package rpc

import (
	"context"
	"net/url"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// modelService has no method that returns a key, although [model.Models] has them: wireEndpoint leaves them out.
type modelService struct{ Services }

func (s *modelService) ListModels(ctx context.Context, req *arbev1.ListModelsRequest) (*arbev1.ListModelsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	m, err := s.Models.Models(ctx, scope.House)
	if err != nil {
		return nil, err
	}
	return &arbev1.ListModelsResponse{Endpoints: each(m.Found, wireEndpoint), DefaultModel: m.Default.String(), ChosenModel: m.Chosen, Problem: problem(m.Problem), FallbackModels: m.Fallbacks}, nil
}

func (s *modelService) SetDefaultModel(ctx context.Context, req *arbev1.SetDefaultModelRequest) (*arbev1.SetDefaultModelResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	m, err := s.Models.SetDefault(ctx, scope, req.GetModel())
	if err != nil {
		return nil, err
	}
	return &arbev1.SetDefaultModelResponse{DefaultModel: m.Default.String(), Problem: problem(m.Problem)}, nil
}

func (s *modelService) SetFallbackModels(ctx context.Context, req *arbev1.SetFallbackModelsRequest) (*arbev1.SetFallbackModelsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	set, wrong, err := s.Models.SetFallbacks(ctx, scope, req.GetModels())
	if err != nil {
		return nil, err
	}
	return &arbev1.SetFallbackModelsResponse{Models: set, Problem: problem(wrong)}, nil
}

func (s *modelService) SetModelEndpoint(ctx context.Context, req *arbev1.SetModelEndpointRequest) (*arbev1.SetModelEndpointResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	if err := s.Models.SetEndpoint(ctx, scope, model.Server{Name: req.GetName(), BaseURL: req.GetBaseUrl(), Secret: req.GetSecretName(), Key: req.GetKey()}); err != nil {
		return nil, err
	}
	all, err := s.Models.Endpoints(ctx, scope.House)
	for _, f := range all {
		if f.Endpoint.Name == req.GetName() {
			return &arbev1.SetModelEndpointResponse{Endpoint: wireEndpoint(f)}, nil
		}
	}
	if err == nil {
		err = fault.New(fault.Aborted, "somebody removed the endpoint at the same time", "add it again if you want it")
	}
	return nil, err
}

func (s *modelService) DeleteModelEndpoint(ctx context.Context, req *arbev1.DeleteModelEndpointRequest) (*arbev1.DeleteModelEndpointResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.DeleteModelEndpointResponse{}, s.Models.DeleteEndpoint(ctx, scope, req.GetName())
}

// problem returns what is wrong as its reader may see it; empty for nil.
func problem(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).Error()
}

// wireEndpoint leaves out where an endpoint of the installation is: only the operator may know which addresses are inside
// the operator's network.
func wireEndpoint(f model.Found) *arbev1.ModelEndpoint {
	e := &arbev1.ModelEndpoint{Name: f.Endpoint.Name, Provider: string(f.Endpoint.Provider), Source: f.Source, SecretName: f.Secret,
		Own: f.Own, Models: f.Models, DefaultModel: f.Default, Problem: problem(f.Problem)}
	if !f.Own {
		if f.Problem != nil {
			e.Problem = "it cannot be used now; ask the operator of this installation"
		}
	} else if u, err := url.Parse(f.Endpoint.BaseURL); err == nil { // somebody may have put a password into it
		e.BaseUrl = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	return e
}
