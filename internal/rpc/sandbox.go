package rpc

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
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
	list, err := s.used(ctx, scope, got)
	if err != nil {
		return nil, err
	}
	return &arbev1.GetSandboxResponse{Sandbox: list[0]}, nil
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
	filter := sandbox.Filter{Prefix: req.GetIdPrefix(), Driver: req.GetProvider(), Existing: req.GetExisting()}
	rows, err := s.Boxes.ListSandboxes(ctx, scope, filter, before, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(sandboxList, rows, size, func(b sandbox.Sandbox) bookmark { return bookmark{Time: b.CreatedAt, ID: b.ID} })
	list, err := s.used(ctx, scope, rows...)
	if err != nil {
		return nil, err
	}
	res := &arbev1.ListSandboxesResponse{Sandboxes: list, NextPageToken: next}
	if req.GetPageToken() == "" {
		disk, err := s.Boxes.Disk(ctx, scope)
		if err != nil {
			return nil, err
		}
		spending, err := s.Boxes.Spending(ctx, scope)
		if err != nil {
			return nil, err
		}
		res.Disk, res.Spending = wireDisk(disk), wireSpending(spending)
	}
	return res, nil
}

// used returns sandboxes with their users.
func (s *sandboxService) used(ctx context.Context, scope db.Scope, boxes ...sandbox.Sandbox) ([]*arbev1.Sandbox, error) {
	uses, err := s.Boxes.Uses(ctx, scope, each(boxes, func(b sandbox.Sandbox) string { return b.ID })...)
	return each(boxes, func(b sandbox.Sandbox) *arbev1.Sandbox {
		made := wireSandbox(s.Boxes, b)
		made.Use = wireUse(uses[b.ID])
		return made
	}), err
}

func (s *sandboxService) DestroySandbox(ctx context.Context, req *arbev1.DestroySandboxRequest) (*arbev1.DestroySandboxResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Sandbox(req.GetId()))
	if err != nil {
		return nil, err
	}
	box, err := s.Dispatcher.DestroySandbox(ctx, scope, req.GetId(), req.GetDiscard())
	if err != nil {
		return nil, err
	}
	return &arbev1.DestroySandboxResponse{Sandbox: wireSandbox(s.Boxes, box)}, nil
}

func (s *sandboxService) GetSandboxLog(ctx context.Context, req *arbev1.GetSandboxLogRequest) (*arbev1.GetSandboxLogResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Sandbox(req.GetId()))
	if err != nil {
		return nil, err
	}
	if _, err := s.Boxes.Sandbox(ctx, scope, req.GetId()); err != nil {
		return nil, err
	}
	tree, err := s.Boxes.Tree(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetSandboxLogResponse{
		Steps: each(tree.Steps, wireStep), UsedAt: timestamp(tree.UsedAt), SavedAt: timestamp(tree.SavedAt), Saved: each(tree.Saved, wireSaved),
	}, nil
}

func (s *sandboxService) ReconcileSandboxes(ctx context.Context, req *arbev1.ReconcileSandboxesRequest) (*arbev1.ReconcileSandboxesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	list, err := s.Boxes.Reconcile(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.ReconcileSandboxesResponse{Sandboxes: each(list, func(r sandbox.Reconciled) *arbev1.ReconciledSandbox {
		return &arbev1.ReconciledSandbox{Sandbox: wireSandbox(s.Boxes, r.Sandbox), Liveness: wireEnum[arbev1.SandboxLiveness](r.Liveness)}
	})}, nil
}

func (s *sandboxService) ListSandboxAccounts(ctx context.Context, req *arbev1.ListSandboxAccountsRequest) (*arbev1.ListSandboxAccountsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	list, err := s.Boxes.OwnAccounts(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.ListSandboxAccountsResponse{Accounts: each(list, wireAccount)}, nil
}

// wakeAliveEvery is the time between two heartbeats while a sandbox is being built or started.
const wakeAliveEvery = 2 * time.Second

func (s *sandboxService) WakeSandbox(ctx context.Context, req *arbev1.WakeSandboxRequest, to *connect.ServerStream[arbev1.WakeSandboxResponse]) error {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	defer done()
	var woken iter.Seq2[sandbox.Woken, error] = func(yield func(sandbox.Woken, error) bool) { yield(s.Boxes.Wake(ctx, scope, req.GetThreadId())) }
	return relay(ctx, woken, func(w sandbox.Woken) *arbev1.WakeSandboxResponse {
		return &arbev1.WakeSandboxResponse{SandboxId: w.Sandbox, Started: w.Started}
	}, func(sandbox.Woken) time.Time { return time.Now() }, wakeAliveEvery, &arbev1.WakeSandboxResponse{}, to.Send)
}

func (s *sandboxService) OpenPreview(ctx context.Context, req *arbev1.OpenPreviewRequest) (*arbev1.OpenPreviewResponse, error) {
	if _, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId())); err != nil {
		return nil, err
	}
	url, expires, err := s.Ports.OpenPreview(ctx, req.GetThreadId(), uint16(req.GetPort()))
	if err != nil {
		return nil, err
	}
	return &arbev1.OpenPreviewResponse{Url: url, ExpiresAt: timestamp(expires)}, nil
}

func (s *sandboxService) ReadSandboxPath(ctx context.Context, req *arbev1.ReadSandboxPathRequest, to *connect.ServerStream[arbev1.ReadSandboxPathResponse]) error {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	defer done()
	err = s.Dispatcher.ReadPath(ctx, scope, req.GetThreadId(), req.GetPath(), req.GetMaxBytes(), func(l dispatch.Listing) error {
		return to.Send(&arbev1.ReadSandboxPathResponse{
			File: &arbev1.SandboxFile{Name: l.Path, Kind: string(l.Kind), Size: l.Size}, Files: each(l.Files, wireFile), More: l.More,
		})
	}, func(piece []byte) error { return to.Send(&arbev1.ReadSandboxPathResponse{Content: piece}) })
	if ctx.Err() != nil {
		return auth.Refused(ctx)
	}
	return err
}

func (s *sandboxService) GetSandboxChanges(ctx context.Context, req *arbev1.GetSandboxChangesRequest) (*arbev1.GetSandboxChangesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Dispatcher.TreeChanges(ctx, scope, req.GetThreadId(), req.GetUncommitted())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetSandboxChangesResponse{Patch: got.Patch, More: got.More, LeftOut: int32(got.LeftOut)}, nil
}
