package rpc

import (
	"context"
	"net/url"
	"slices"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// modelService has no method that returns a key. [model.Models] holds keys, but wireEndpoint leaves them out.
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
	s.Models.List(ctx, scope.House, &m)
	return &arbev1.ListModelsResponse{Endpoints: each(m.Found, wireEndpoint), DefaultModel: m.Default.String(), ChosenModel: m.Chosen, Problem: problem(m.Problem), FallbackModels: m.Fallbacks}, nil
}

func (s *modelService) SetDefaultModel(ctx context.Context, req *arbev1.SetDefaultModelRequest) (*arbev1.SetDefaultModelResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	m, unverified, err := s.Models.SetDefault(ctx, scope, req.GetModel(), req.GetSkipCheck())
	if err != nil {
		return nil, err
	}
	return &arbev1.SetDefaultModelResponse{DefaultModel: m.Default.String(), Problem: problem(m.Problem), Unverified: unverified}, nil
}

func (s *modelService) SetFallbackModels(ctx context.Context, req *arbev1.SetFallbackModelsRequest) (*arbev1.SetFallbackModelsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	set, err := s.Models.SetFallbacks(ctx, scope, req.GetModels(), req.GetSkipCheck())
	if err != nil {
		return nil, err
	}
	return &arbev1.SetFallbackModelsResponse{Models: set.Models, Problem: problem(set.Problem), Unverified: set.Unverified}, nil
}

func (s *modelService) SetModelEndpoint(ctx context.Context, req *arbev1.SetModelEndpointRequest) (*arbev1.SetModelEndpointResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	dialect, err := model.ParseDialect(req.GetDialect())
	if err != nil {
		return nil, err
	}
	tried, err := s.Models.SetEndpoint(ctx, scope, model.Server{Name: req.GetName(), BaseURL: req.GetBaseUrl(), Dialect: dialect, Secret: req.GetSecretName(),
		Key: req.GetKey(), Skip: req.GetSkipCheck()})
	if err != nil {
		return nil, err
	}
	all, err := s.Models.Endpoints(ctx, scope.House)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(f model.Found) bool { return f.Own && f.Endpoint.Name == req.GetName() })
	if at < 0 {
		return nil, fault.New(fault.Aborted, "somebody removed the endpoint at the same time", "add it again if you want it")
	}
	uses, err := s.Models.Uses(ctx, scope, req.GetName())
	if err != nil {
		return nil, err
	}
	check, err := s.keyCheck(ctx, scope, tried, uses)
	if err != nil {
		return nil, err
	}
	return &arbev1.SetModelEndpointResponse{Endpoint: wireEndpoint(all[at]), Check: check}, nil
}

func (s *modelService) DeleteModelEndpoint(ctx context.Context, req *arbev1.DeleteModelEndpointRequest) (*arbev1.DeleteModelEndpointResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.DeleteModelEndpointResponse{}, s.Models.DeleteEndpoint(ctx, scope, req.GetName())
}

// problem returns the part of an error that its reader may see, or "" for nil.
func problem(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).Error()
}

// wireEndpoint hides the addresses of the installation's endpoints, because only the operator may know which addresses are
// inside the operator's network.
func wireEndpoint(f model.Found) *arbev1.ModelEndpoint {
	e := &arbev1.ModelEndpoint{Name: f.Endpoint.Name, Provider: string(f.Endpoint.Provider), Source: f.Source, SecretName: f.Secret,
		Own: f.Own, Models: f.Models, DefaultModel: f.Default, Problem: problem(f.Problem), Dialect: f.Endpoint.Dialect.Word(), Infos: modelInfos(f)}
	if !f.Own {
		if f.Problem != nil {
			e.Problem = "it cannot be used now; ask the operator of this installation"
		}
	} else if u, err := url.Parse(f.Endpoint.BaseURL); err == nil { // somebody may have put a password into the address
		e.BaseUrl = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	return e
}

// modelInfos returns the catalog's data about the models of an endpoint.
func modelInfos(f model.Found) (infos []*arbev1.ModelInfo) {
	ids := f.Models
	if len(ids) == 0 && f.Default != "" {
		ids = []string{f.Default}
	}
	for _, id := range ids {
		known := model.Lookup(f.Endpoint.Provider, id)
		if !known.Known && known.Price == nil {
			continue
		}
		info := &arbev1.ModelInfo{Id: id}
		if known.Known {
			info.ContextWindow = known.ContextWindow
		}
		if p := known.Price; p != nil {
			million := func(m model.Money) float64 { return float64(m) * 1e6 / float64(model.Dollar) }
			info.Price = &arbev1.ModelPrice{InputUsd: million(p.Input), OutputUsd: million(p.Output), CacheReadUsd: million(p.CacheRead), CacheWriteUsd: million(p.CacheWrite)}
		}
		infos = append(infos, info)
	}
	return infos
}
