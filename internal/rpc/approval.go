package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/auth"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type approvalService struct{ Services }

func (s *approvalService) ListApprovals(ctx context.Context, req *arbev1.ListApprovalsRequest) (*arbev1.ListApprovalsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	after, err := approvalList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Dispatcher.OpenApprovals(ctx, scope, req.GetThreadId(), db.Cursor{Time: after.Time, ID: after.ID}, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(approvalList, rows, size, func(a approval.Approval) bookmark { return bookmark{Time: a.AskedAt, ID: a.ID} })
	return &arbev1.ListApprovalsResponse{Approvals: each(rows, wireApproval), NextPageToken: next}, nil
}

func (s *approvalService) GetApproval(ctx context.Context, req *arbev1.GetApprovalRequest) (*arbev1.GetApprovalResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	found, err := s.Dispatcher.Approval(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetApprovalResponse{Approval: wireApproval(found)}, nil
}

// AnswerApproval refuses thread tokens because of its action, and bots' keys because of their holder.
func (s *approvalService) AnswerApproval(ctx context.Context, req *arbev1.AnswerApprovalRequest) (*arbev1.AnswerApprovalResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	answered, err := s.Dispatcher.Answer(ctx, scope, approval.Answer{
		House: scope.House, Thread: req.GetThreadId(), Approval: req.GetId(), Approve: req.GetVerdict() == arbev1.Verdict_VERDICT_APPROVE, Reason: req.GetReason(),
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.AnswerApprovalResponse{Approval: wireApproval(answered)}, nil
}

func wireApproval(a approval.Approval) *arbev1.Approval {
	return &arbev1.Approval{Id: a.ID, HouseId: a.House, ThreadId: a.Thread, TurnId: a.Turn, AgentId: a.Bot, CallId: a.Call, Tool: a.Tool,
		Arguments: string(a.Arguments), State: wireEnum[arbev1.ApprovalState](a.State), Epoch: a.Epoch, Question: a.Question, AskedAt: timestamp(a.AskedAt), ExpiresAt: timestamp(a.ExpiresAt),
		AnsweredByAgentId: a.AnsweredBy, AnsweredByName: a.AnsweredByName, AnsweredAt: timestamp(a.AnsweredAt), Reason: a.Reason,
		AgentName: a.BotName, ThreadName: a.ThreadName}
}
