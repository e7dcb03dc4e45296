package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/sandbox"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type sandboxService struct{ Services }

func (s *sandboxService) GetSandbox(ctx context.Context, req *arbev1.GetSandboxRequest) (*arbev1.GetSandboxResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Sandbox(req.GetId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Boxes.Sandbox(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetSandboxResponse{Sandbox: wireSandbox(got)}, nil
}

func (s *sandboxService) ListSandboxes(ctx context.Context, req *arbev1.ListSandboxesRequest) (*arbev1.ListSandboxesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	from, err := sandboxList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	before := db.Newest
	if from.ID != "" {
		before = from.cursor()
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Boxes.ListSandboxes(ctx, scope, req.GetIdPrefix(), before, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(sandboxList, rows, size, func(b sandbox.Sandbox) bookmark { return bookmark{Time: b.CreatedAt, ID: b.ID} })
	return &arbev1.ListSandboxesResponse{Sandboxes: each(rows, wireSandbox), NextPageToken: next}, nil
}

func (s *sandboxService) DestroySandbox(ctx context.Context, req *arbev1.DestroySandboxRequest) (*arbev1.DestroySandboxResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Sandbox(req.GetId()))
	if err != nil {
		return nil, err
	}
	box, err := s.Dispatcher.DestroySandbox(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.DestroySandboxResponse{Sandbox: wireSandbox(box)}, nil
}
