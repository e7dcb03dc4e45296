package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/house"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (s *houseService) ListAuditEvents(ctx context.Context, req *arbev1.ListAuditEventsRequest) (*arbev1.ListAuditEventsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	before, err := auditList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Houses.AuditEvents(ctx, scope, before.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(auditList, rows, size, func(e house.AuditEvent) bookmark { return bookmark{Time: e.At, ID: e.ID} })
	return &arbev1.ListAuditEventsResponse{Events: each(rows, wireAuditEvent), NextPageToken: next}, nil
}
