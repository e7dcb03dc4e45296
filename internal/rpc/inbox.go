package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/inbox"
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
	now, err := s.Inboxes.MarkRead(ctx, scope, req.GetThreadId(), req.GetSeq())
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

func wireInbox(i inbox.Inbox) *arbev1.Inbox {
	return &arbev1.Inbox{Total: int32(i.Total), Needs: each(i.Needs, wireNeed), Readings: each(i.Readings, wireReading), Direct: each(i.Direct, wireDirect)}
}

func wireDirect(d inbox.Direct) *arbev1.Direct {
	return &arbev1.Direct{ThreadId: d.Thread, ThreadName: shown(d.Name), AgentId: d.Agent, AgentName: shown(d.AgentName), AgentKind: d.Kind, ActiveAt: timestamp(d.At)}
}

func wireNeed(n inbox.Need) *arbev1.Need {
	need := &arbev1.Need{ThreadId: n.Thread, ThreadName: n.Name, Seq: n.Seq, At: timestamp(n.At)}
	for _, r := range []struct {
		holds  bool
		reason arbev1.NeedReason
	}{
		{n.Approval, arbev1.NeedReason_NEED_REASON_APPROVAL}, {n.Mention, arbev1.NeedReason_NEED_REASON_MENTION},
		{n.Failed, arbev1.NeedReason_NEED_REASON_FAILED}, {n.Finished, arbev1.NeedReason_NEED_REASON_FINISHED},
	} {
		if r.holds {
			need.Reasons = append(need.Reasons, r.reason)
		}
	}
	return need
}

func wireReading(r inbox.Reading) *arbev1.Reading {
	return &arbev1.Reading{ThreadId: r.Thread, Seq: r.Seq, Unread: int32(r.Unread), Muted: r.Muted}
}
