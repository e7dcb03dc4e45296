package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type inboxService struct{ Services }

func (s *inboxService) GetInbox(ctx context.Context, req *arbev1.GetInboxRequest) (*arbev1.GetInboxResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Inboxes.Get(ctx, scope, req.GetThreadIds())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetInboxResponse{Inbox: wireInbox(got)}, nil
}

func (s *inboxService) MarkRead(ctx context.Context, req *arbev1.MarkReadRequest) (*arbev1.MarkReadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	mark := s.Inboxes.MarkRead
	if req.GetUnread() {
		mark = s.Inboxes.MarkUnread
	}
	now, err := mark(ctx, scope, req.GetThreadId(), req.GetSeq())
	if err != nil {
		return nil, err
	}
	return &arbev1.MarkReadResponse{Reading: wireReading(now)}, nil
}

func (s *inboxService) MuteThread(ctx context.Context, req *arbev1.MuteThreadRequest) (*arbev1.MuteThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	now, err := s.Inboxes.Mute(ctx, scope, req.GetThreadId(), req.GetMuted())
	if err != nil {
		return nil, err
	}
	return &arbev1.MuteThreadResponse{Reading: wireReading(now)}, nil
}
