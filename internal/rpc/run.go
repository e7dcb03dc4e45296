package rpc

import (
	"cmp"
	"context"
	"strconv"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/run"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type runService struct{ Services }

func (s *runService) Delegate(ctx context.Context, req *arbev1.DelegateRequest) (*arbev1.DelegateResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	if err := s.Dispatcher.MayGrow(ctx, scope); err != nil {
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
	after, err := runList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	before, _ := strconv.ParseInt(after.ID, 10, 64) // 0 for the first page
	//lint:ignore SA1019 clients of older versions set it
	size := int(cmp.Or(req.GetPageSize(), req.GetLimit(), 20))
	rows, tree, err := s.Dispatcher.Runs.List(ctx, scope, req.GetThreadId(), before, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(runList, rows, size, func(r run.Run) bookmark { return bookmark{ID: strconv.FormatInt(r.Epoch, 10)} })
	return &arbev1.ListRunsResponse{Runs: each(rows, wireRun), TreeCostMicros: tree.Micros, TreeCostUnknown: tree.Unknown, NextPageToken: next}, nil
}

func (s *runService) ContinueRun(ctx context.Context, req *arbev1.ContinueRunRequest) (*arbev1.ContinueRunResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	c, err := s.Dispatcher.Runs.Continue(ctx, scope, req.GetThreadId(), run.Resume{
		Fresh: req.GetFresh(), Agent: req.GetAgent(), Task: req.GetTask(), Sandbox: req.GetSandbox(), ID: req.GetOnce(),
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.ContinueRunResponse{Epoch: c.Epoch, ThreadId: c.Thread}, nil
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

func (s *runService) ListQueue(ctx context.Context, req *arbev1.ListQueueRequest) (*arbev1.ListQueueResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	q, err := s.Dispatcher.Runs.Waiting(ctx, scope, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.ListQueueResponse{Messages: each(q.Messages, wireQueued), Total: int32(q.Total), Steers: q.Steers}, nil
}

func (s *runService) ChangeQueue(ctx context.Context, req *arbev1.ChangeQueueRequest) (*arbev1.ChangeQueueResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	change := run.QueueChange{ID: req.GetOnce(), Message: req.GetEntryId(), Version: req.GetVersion()}
	switch c := req.GetChange().(type) {
	case *arbev1.ChangeQueueRequest_Edit:
		change.What = entry.QueueEdited{EntryID: req.GetEntryId(), Text: c.Edit}
	case *arbev1.ChangeQueueRequest_Move_:
		change.What = entry.QueueMoved{EntryID: req.GetEntryId(), Before: c.Move.GetBeforeEntryId()}
	case *arbev1.ChangeQueueRequest_Queue:
		change.What = entry.QueueTimed{EntryID: req.GetEntryId(), Queue: c.Queue}
	case *arbev1.ChangeQueueRequest_Cancel_:
		change.What = entry.QueueCancelled{EntryID: req.GetEntryId()}
	}
	if err := s.Dispatcher.Runs.ChangeQueue(ctx, scope, req.GetThreadId(), change); err != nil {
		return nil, err
	}
	q, err := s.Dispatcher.Runs.Waiting(ctx, scope, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.ChangeQueueResponse{Messages: each(q.Messages, wireQueued), Total: int32(q.Total)}, nil
}

func wireQueued(m run.Queued) *arbev1.QueuedMessage {
	return &arbev1.QueuedMessage{
		EntryId: m.ID, AuthorAgentId: m.Author, Seq: m.Seq, SaidAt: timestamp(m.Time), Text: m.Chat.Text, Clipped: m.Clipped,
		Attachments: each(m.Chat.Attachments, wireAttachment), Version: m.Version, EditedByAgentId: m.EditedBy, Queue: m.Later,
	}
}

func wireAttachment(a entry.Attachment) *arbev1.Attachment {
	return &arbev1.Attachment{ArtifactId: a.ArtifactID, Name: a.Name, MediaType: a.MediaType, Size: a.Size, Width: int64(a.Width), Height: int64(a.Height)}
}

func (s *runService) ApplyChanges(ctx context.Context, req *arbev1.ApplyChangesRequest) (*arbev1.ApplyChangesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	used, err := s.Dispatcher.Runs.Apply(ctx, scope, req.GetThreadId(), req.GetEpoch())
	if err != nil || used.Thread == "" {
		return &arbev1.ApplyChangesResponse{}, err
	}
	return &arbev1.ApplyChangesResponse{ThreadId: used.Thread, Command: wireEntry(used.Command)}, nil
}

func (s *runService) OpenBranch(ctx context.Context, req *arbev1.OpenBranchRequest) (*arbev1.OpenBranchResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	used, err := s.Dispatcher.Runs.Branch(ctx, scope, req.GetThreadId(), req.GetEpoch(), req.GetName())
	if err != nil || used.Thread == "" {
		return &arbev1.OpenBranchResponse{}, err
	}
	return &arbev1.OpenBranchResponse{ThreadId: used.Thread, Command: wireEntry(used.Command), Branch: used.Branch, Url: used.URL}, nil
}

func (s *runService) ReconcileThread(ctx context.Context, req *arbev1.ReconcileThreadRequest) (*arbev1.ReconcileThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	look := s.Dispatcher.Runs.Reconcile
	if req.GetDryRun() {
		look = s.Dispatcher.Runs.Judge
	}
	done, err := look(ctx, scope, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.ReconcileThreadResponse{From: wireEnum[arbev1.ThreadStatus](done.From), To: wireEnum[arbev1.ThreadStatus](done.To), Reason: done.Reason}, nil
}

func wireRun(r run.Run) *arbev1.Run {
	w := &arbev1.Run{
		ThreadId: r.Thread, Epoch: r.Epoch, Status: wireEnum[arbev1.RunStatus](r.Status), StartedAt: timestamp(r.Started), FinishedAt: timestamp(r.Ended),
		FailurePhase: wireEnum[arbev1.FailurePhase](r.Phase),
		Error:        r.Error, Next: r.Next, LastLines: r.LastLines, Result: r.Result, PatchArtifactId: r.Patch, BranchRepository: r.Repository, Policy: string(r.Policy),
	}
	if u := r.Usage; u != nil {
		w.Usage = &arbev1.TurnUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CostMicros: u.CostMicros, CostUnknown: u.CostUnknown}
	}
	return w
}
