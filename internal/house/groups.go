package house

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// FollowGroups gives a person the roles of their groups at the login provider, whose name is by. roles has them by house. A
// role that came from a group ends when no group gives it any more. A role from elsewhere stays, and so does the last owner
// of a house. unknown are the houses in roles that do not exist.
func (h *Houses) FollowGroups(ctx context.Context, agentID, by string, roles map[string]string) (unknown []string, err error) {
	all := map[string]bool{}
	for id := range roles {
		all[id] = true
	}
	err = h.db.In(ctx, db.Scope{Agent: agentID}, func(tx pgx.Tx) error {
		had, err := h.q.HousesOfGroups(ctx, tx)
		for _, id := range had {
			all[id] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		scope := db.Scope{House: id, Agent: agentID}
		err := h.db.In(ctx, scope, func(tx pgx.Tx) error { return h.followGroupsTx(ctx, tx, scope, by, roles[id]) })
		if fault.CodeOf(err) == fault.NotFound {
			unknown = append(unknown, id)
		} else if err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// followGroupsTx is [Houses.FollowGroups] in the scope's house. wanted is the role that the groups give, empty for none.
func (h *Houses) followGroupsTx(ctx context.Context, tx pgx.Tx, scope db.Scope, by, wanted string) error {
	// Of two simultaneous logins of one person, the second waits for the first.
	if err := h.q.LockHousesOf(ctx, tx, scope.Agent); err != nil {
		return err
	}
	owners, err := h.q.LockOwners(ctx, tx, scope.House)
	if err != nil {
		return err
	}
	if _, err := h.get(ctx, tx, scope.House); err != nil {
		return err
	}
	m, byHand, err := h.byHandTx(ctx, tx, scope)
	if err != nil {
		return err
	}
	role := byHand
	if rank(wanted) > rank(byHand) {
		role = wanted
	}
	if m.Role == Owner && role != Owner && len(owners) == 1 {
		return nil // the next login tries again
	}
	if err := h.changeRoleTx(ctx, tx, scope, by, m.Role, role); err != nil || role == "" {
		return err // the row of a former member is deleted with their membership
	}
	if role == byHand {
		return h.q.DeleteGroupRole(ctx, tx, scope.House, scope.Agent)
	}
	return h.q.SetGroupRole(ctx, tx, query.SetGroupRoleParams{HouseID: scope.House, AgentID: scope.Agent, Role: role, ByHand: db.Null(byHand)})
}

// byHandTx returns the membership of the scope's agent, and the role that it would have without groups.
func (h *Houses) byHandTx(ctx context.Context, tx pgx.Tx, scope db.Scope) (m Member, byHand string, err error) {
	m, err = h.memberForUpdate(ctx, tx, scope, scope.Agent)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return m, "", err
	}
	given, err := h.q.GroupRole(ctx, tx, scope.House, scope.Agent)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return m, "", err
	}
	// If the role is no longer the one that the groups gave, an owner has changed it.
	if err == nil && given.Role == m.Role {
		return m, db.Zero(given.ByHand), nil
	}
	return m, m.Role, nil
}

// changeRoleTx changes the role of the scope's agent, from and to an empty one if they are no member.
func (h *Houses) changeRoleTx(ctx context.Context, tx pgx.Tx, scope db.Scope, by, from, to string) error {
	if from == to {
		return nil
	}
	name, err := h.nameOf(ctx, tx, scope.Agent)
	if err != nil {
		return err
	}
	if from == Owner {
		if err := h.q.RevokeInvitesOf(ctx, tx, scope.House, scope.Agent); err != nil {
			return err
		}
	}
	record := func(p entry.Payload) error { return h.threads.RecordInHouseTx(ctx, tx, scope, p) }
	switch {
	case from == "":
		if err := h.q.InsertMember(ctx, tx, scope.House, scope.Agent, to); err != nil {
			return err
		}
		return record(entry.MemberJoined{AgentID: scope.Agent, Name: name, Role: to, InvitedBy: by})
	case to == "":
		// The entry comes first, because only a member can be its author.
		if err := record(entry.MemberRemoved{AgentID: scope.Agent, Name: name, By: by}); err != nil {
			return err
		}
		return h.q.DeleteMember(ctx, tx, scope.House, scope.Agent)
	}
	if err := h.q.SetMemberRole(ctx, tx, to, scope.House, scope.Agent); err != nil {
		return err
	}
	return record(entry.RoleChanged{AgentID: scope.Agent, Name: name, From: from, To: to, By: by})
}

// rank orders roles, the empty one first.
func rank(role string) int { return slices.Index([]string{"", Regular, Owner}, role) }
