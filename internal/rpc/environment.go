package rpc

import (
	"context"
	"iter"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type environmentService struct{ Services }

func (s *environmentService) CreateEnvironment(ctx context.Context, req *arbev1.CreateEnvironmentRequest) (*arbev1.CreateEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	if err := s.mayBind(ctx, scope, sandbox.Recipe{}, req.GetConfig()); err != nil {
		return nil, err
	}
	made, err := s.Boxes.CreateEnvironment(ctx, scope, req.GetName(), recipe(req.GetConfig()))
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateEnvironmentResponse{Environment: wireEnvironment(made)}, nil
}

// mayBind reports whether the caller may give a recipe's commands and repository hosts more secrets than they already
// receive.
func (s *environmentService) mayBind(ctx context.Context, scope db.Scope, was sandbox.Recipe, c *arbev1.EnvironmentConfig) error {
	var fresh []string
	for _, b := range c.GetSecrets() {
		if !slices.ContainsFunc(was.Secrets, func(bound secret.Binding) bool { return bound.Name == b.GetName() }) {
			fresh = append(fresh, b.GetName())
		}
	}
	for _, g := range each(c.GetGit(), gitCredential) {
		if slices.ContainsFunc(was.Git, func(bound sandbox.GitCredential) bool {
			return bound.Host == g.Host && bound.Secret == g.Secret && bound.GitHubApp == g.GitHubApp && bound.GitHubAPI == g.GitHubAPI
		}) {
			continue
		}
		if fresh = append(fresh, g.Secret); g.GitHubApp == "" {
			continue
		}
		// The API at this address receives claims, which open all repositories of the App.
		if _, err := s.Auth.Authorize(ctx, auth.Own, auth.House(scope.House)); fault.CodeOf(err) == fault.Forbidden {
			return fault.New(fault.Forbidden, "git: only owners may add a GitHub App, or change it", "ask an owner of the house")
		} else if err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.ownKeys(ctx, scope, fresh...)
}

func (s *environmentService) GetEnvironment(ctx context.Context, req *arbev1.GetEnvironmentRequest) (*arbev1.GetEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Environment(req.GetId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Boxes.Environment(ctx, scope, req.GetId())
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
	rows, err := s.Boxes.ListEnvironments(ctx, scope, after.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(environmentList, rows, size, func(e sandbox.Environment) bookmark { return bookmark{Time: e.CreatedAt, ID: e.ID} })
	return &arbev1.ListEnvironmentsResponse{Environments: each(rows, wireEnvironment), NextPageToken: next, DefaultDriver: sandbox.DefaultDriver}, nil
}

func (s *environmentService) UpdateEnvironment(ctx context.Context, req *arbev1.UpdateEnvironmentRequest) (*arbev1.UpdateEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if err != nil {
		return nil, err
	}
	var r *sandbox.Recipe
	if req.GetConfig() != nil {
		was, err := s.Boxes.Environment(ctx, scope, req.GetId())
		if err != nil {
			return nil, err
		}
		if err := s.mayBind(ctx, scope, was.Recipe, req.GetConfig()); err != nil {
			return nil, err
		}
		set := recipe(req.GetConfig())
		r = &set
	}
	changed, err := s.Boxes.UpdateEnvironment(ctx, scope, req.GetId(), req.GetEtag(), req.Name, r)
	if err != nil {
		return nil, err
	}
	if r != nil {
		s.Boxes.ApplyEgress(ctx, scope, changed)
	}
	return &arbev1.UpdateEnvironmentResponse{Environment: wireEnvironment(changed)}, nil
}

func (s *environmentService) AllowHosts(ctx context.Context, req *arbev1.AllowHostsRequest) (*arbev1.AllowHostsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if err != nil {
		return nil, err
	}
	changed, err := s.Boxes.AllowHosts(ctx, scope, req.GetId(), req.GetHosts(), req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.AllowHostsResponse{Environment: wireEnvironment(changed)}, nil
}

func (s *environmentService) DeleteEnvironment(ctx context.Context, req *arbev1.DeleteEnvironmentRequest) (*arbev1.DeleteEnvironmentResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound { // already deleted, or in a house that the caller must not learn of
		return &arbev1.DeleteEnvironmentResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	return &arbev1.DeleteEnvironmentResponse{}, s.Boxes.DeleteEnvironment(ctx, scope, req.GetId())
}

// diagnosingEvery is the time between two heartbeats during a long step of a diagnosis.
const diagnosingEvery = 10 * time.Second

func (s *environmentService) DiagnoseEnvironment(ctx context.Context, req *arbev1.DiagnoseEnvironmentRequest, to *connect.ServerStream[arbev1.DiagnoseEnvironmentResponse]) error {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Environment(req.GetId()))
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Write, auth.Environment(req.GetId()))
	defer done()
	return relay(ctx, s.checks(ctx, scope, req.GetId(), req.GetRebuild()), wireCheck, func(sandbox.Check) time.Time { return time.Now() }, diagnosingEvery,
		&arbev1.DiagnoseEnvironmentResponse{Event: &arbev1.DiagnoseEnvironmentResponse_Diagnosing{Diagnosing: &arbev1.EnvironmentDiagnosing{}}}, to.Send)
}

// checks yields the steps of a diagnosis. It ends only when the sandbox is deleted, even if nobody reads the steps any more.
func (s *environmentService) checks(ctx context.Context, scope db.Scope, id string, rebuild bool) iter.Seq2[sandbox.Check, error] {
	return func(yield func(sandbox.Check, error) bool) {
		err := s.Boxes.Diagnose(ctx, scope, id, rebuild, func(c sandbox.Check) error {
			if !yield(c, nil) {
				return context.Canceled
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			yield(sandbox.Check{}, err)
		}
	}
}
