package web

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// maxAsks limits the open requests for approval above the composer.
const maxAsks = 5

// asksOf reads the open requests for approval of a thread.
func (a *app) asksOf(ctx context.Context, t *arbev1.Thread) ([]transcript.Approval, error) {
	res, err := a.services.approvals.ListApprovals(ctx, &arbev1.ListApprovalsRequest{HouseId: t.HouseId, ThreadId: t.Id, PageSize: maxAsks})
	if err != nil {
		return nil, err
	}
	var list []transcript.Approval
	for _, one := range res.Approvals {
		list = append(list, transcript.OpenApproval(t.Id, one))
	}
	return list, nil
}

// asksPatch returns the change that an entry makes to the requests above the composer, if any.
func (l *liveThread) asksPatch(ctx context.Context, e entry.Entry) ([]patch, error) {
	if e.Type != (entry.PermissionAsked{}).Type() && e.Type != (entry.PermissionAnswered{}).Type() {
		return nil, nil
	}
	list, err := l.app.asksOf(ctx, l.thread)
	if err != nil {
		return nil, err
	}
	return one(ctx, "#asks", "", asks(list))
}
