package main

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type memberView struct {
	Agent    export.Agent `json:"agent"`
	Role     string       `json:"role"`
	JoinedAt time.Time    `json:"joined_at"`
}

func viewMember(m *arbev1.Member) memberView {
	return memberView{export.ViewAgent(m.GetAgent()), m.GetRole(), m.GetJoinedAt().AsTime()}
}

// findMember returns the house to work in, and the id of the member that ref names.
func (a *app) findMember(ctx context.Context, c *arbe.Client, houseRef, ref string) (house, agent string, err error) {
	if house, err = a.inHouse(ctx, c, houseRef); err != nil {
		return "", "", err
	}
	agent, err = a.find(ctx, c, agentKind, house, ref)
	return house, agent, err
}
