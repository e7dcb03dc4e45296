package rpc

import (
	"cmp"
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/run"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type runService struct{ Services }

func (s *runService) Delegate(ctx context.Context, req *arbev1.DelegateRequest) (*arbev1.DelegateResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	made, err := s.Dispatcher.Runs.Spawn(ctx, scope, run.Task{
		ID: req.GetOnce(), Parent: req.GetParentThreadId(), Text: req.GetTask(), Agent: req.GetAgent(), Environment: req.GetEnvironmentId(), Sandbox: req.GetSandbox(),
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.DelegateResponse{Thread: wireThread(made)}, nil
}

func (s *runService) ListRuns(ctx context.Context, req *arbev1.ListRunsRequest) (*arbev1.ListRunsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	list, err := s.Dispatcher.Runs.List(ctx, scope, req.GetThreadId(), int(cmp.Or(req.GetLimit(), 20)))
	if err != nil {
		return nil, err
	}
	return &arbev1.ListRunsResponse{Runs: each(list, wireRun)}, nil
}

func (s *runService) ContinueRun(ctx context.Context, req *arbev1.ContinueRunRequest) (*arbev1.ContinueRunResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	epoch, err := s.Dispatcher.Runs.Continue(ctx, scope, req.GetThreadId(), run.Resume{Fresh: req.GetFresh()})
	if err != nil {
		return nil, err
	}
	return &arbev1.ContinueRunResponse{Epoch: epoch}, nil
}

func (s *runService) CancelRun(ctx context.Context, req *arbev1.CancelRunRequest) (*arbev1.CancelRunResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	stopped, err := s.Dispatcher.Runs.Cancel(ctx, scope, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.CancelRunResponse{Stopped: stopped}, nil
}

func (s *runService) ReconcileThread(ctx context.Context, req *arbev1.ReconcileThreadRequest) (*arbev1.ReconcileThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	done, err := s.Dispatcher.Runs.Reconcile(ctx, scope, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.ReconcileThreadResponse{From: string(done.From), To: string(done.To), Reason: done.Reason}, nil
}

func wireRun(r run.Run) *arbev1.Run {
	w := &arbev1.Run{
		ThreadId: r.Thread, Epoch: r.Epoch, Status: string(r.Status), StartedAt: timestamp(r.Started), FinishedAt: timestamp(r.Ended), FailurePhase: r.Phase,
		Error: r.Error, Next: r.Next, LastLines: r.LastLines, Result: r.Result, PatchArtifactId: r.Patch,
	}
	if u := r.Usage; u != nil {
		w.Usage = &arbev1.TurnUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CostMicros: u.CostMicros, CostUnknown: u.CostUnknown}
	}
	return w
}
