package house

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The roles of members.
const (
	Owner   = "owner"
	Regular = "member"
)

// Member is an agent in a house.
type Member struct {
	Agent    Agent
	Role     string
	JoinedAt time.Time
}

// ETag names the version of the role that [Houses.SetRole] changes.
func (m Member) ETag() string { return etag.Of(m.Agent.ID, m.Role) }

// SetRole makes a person of the scope's house an owner or a member. The scope's agent must be an owner. The pending
// invites of an owner who becomes a member are revoked, because only owners may invite. The role of the last owner or
// of a bot cannot be changed: [fault.Precondition]. version is the etag of the version that the change was made for, or empty.
func (h *Houses) SetRole(ctx context.Context, scope db.Scope, agentID, role, version string) (changed Member, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		owners, err := h.lockOwners(ctx, tx, scope)
		if err != nil {
			return err
		}
		if changed, err = h.memberForUpdate(ctx, tx, scope, agentID); err != nil {
			return err
		}
		if err := etag.Check(version, changed.ETag(), "this member"); err != nil {
			return err
		}
		was := changed.Role
		switch {
		case was == role:
			return nil
		case role == Owner && changed.Agent.Kind == "bot":
			return fault.New(fault.Precondition, "a bot cannot be an owner", "make a person an owner")
		case was == Owner && len(owners) == 1:
			return lastOwner()
		}
		changed.Role = role
		return h.setRoleTx(ctx, tx, scope, was, changed)
	})
	return changed, err
}

// setRoleTx gives a member their new role, and records it.
func (h *Houses) setRoleTx(ctx context.Context, tx pgx.Tx, scope db.Scope, was string, m Member) error {
	if err := h.q.SetMemberRole(ctx, tx, m.Role, scope.House, m.Agent.ID); err != nil {
		return err
	}
	if was == Owner {
		if err := h.q.RevokeInvitesOf(ctx, tx, scope.House, m.Agent.ID); err != nil {
			return err
		}
	}
	by, err := h.nameOf(ctx, tx, scope.Agent)
	if err != nil {
		return err
	}
	return h.threads.RecordInHouseTx(ctx, tx, scope, entry.RoleChanged{AgentID: m.Agent.ID, Name: m.Agent.Name, From: was, To: m.Role, By: by})
}

// Remove removes a person or a bot from the scope's house: the scope's own agent, or anyone if that agent is an
// owner. Their keys for the house and their invites go with the membership. The last owner and a bot that drives a
// thread cannot be removed: [fault.Precondition]. If with is not nil, it is called in the same transaction, before
// anything is locked, to remove what else depends on the membership.
func (h *Houses) Remove(ctx context.Context, scope db.Scope, agentID string, with func(pgx.Tx) error) error {
	err := h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if with != nil {
			if err := with(tx); err != nil {
				return err
			}
		}
		m, err := h.removableTx(ctx, tx, scope, agentID)
		if err != nil {
			return err
		}
		removed := entry.MemberRemoved{AgentID: agentID, Name: m.Agent.Name}
		if agentID != scope.Agent {
			if removed.By, err = h.nameOf(ctx, tx, scope.Agent); err != nil {
				return err
			}
		}
		// Lock the invites before the log, as a person who joins does: otherwise the two could deadlock.
		if err := h.q.RevokeInvitesOf(ctx, tx, scope.House, agentID); err != nil {
			return err
		}
		// The entry comes first, because only a member can be its author.
		if err := h.threads.RecordInHouseTx(ctx, tx, scope, removed); err != nil {
			return err
		}
		return h.q.DeleteMember(ctx, tx, scope.House, agentID)
	})
	if db.Violates(err, "threads_house_id_agent_id_fkey") {
		return fault.New(fault.Precondition, "this bot drives threads of the house", "delete these threads first").Because(err)
	}
	return err
}

// removableTx returns a membership that the scope's agent may end.
func (h *Houses) removableTx(ctx context.Context, tx pgx.Tx, scope db.Scope, agentID string) (Member, error) {
	owners, err := h.q.LockOwners(ctx, tx, scope.House)
	if err != nil {
		return Member{}, err
	}
	if agentID != scope.Agent && !slices.Contains(owners, scope.Agent) {
		return Member{}, noOwner()
	}
	m, err := h.memberForUpdate(ctx, tx, scope, agentID)
	if err == nil && m.Role == Owner && len(owners) == 1 {
		err = lastOwner()
	}
	return m, err
}

// lockOwners returns the owners of the scope's house and keeps them owners until the transaction ends. Otherwise two
// owners who demote each other at the same time would leave a house without an owner. The scope's agent was an owner
// when the request was authorized; if that is no longer so, the error is a [fault.Forbidden].
func (h *Houses) lockOwners(ctx context.Context, tx pgx.Tx, scope db.Scope) (owners []string, err error) {
	if owners, err = h.q.LockOwners(ctx, tx, scope.House); err != nil {
		return nil, err
	}
	if !slices.Contains(owners, scope.Agent) {
		return nil, noOwner()
	}
	return owners, nil
}

func (h *Houses) memberForUpdate(ctx context.Context, tx pgx.Tx, scope db.Scope, agentID string) (Member, error) {
	r, err := h.q.MemberForUpdate(ctx, tx, scope.House, agentID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Member{}, fault.New(fault.NotFound, "agent_id: there is no such member in this house", "list the members of the house")
	}
	return Member{Role: r.Role, JoinedAt: r.JoinedAt,
		Agent: Agent{ID: r.ID, Kind: r.Kind, Runtime: db.Zero(r.Runtime), Name: db.Zero(r.Name), CreatedAt: r.CreatedAt}}, err
}

func (h *Houses) nameOf(ctx context.Context, tx pgx.Tx, agentID string) (string, error) {
	a, err := agent(h.q.GetAgent(ctx, tx, agentID))
	return a.Name, err
}

func lastOwner() error {
	return fault.New(fault.Precondition, "this is the last owner of the house", "make another member an owner first").WithReason(fault.LastOwner)
}

func noOwner() error {
	return fault.New(fault.Forbidden, "only an owner of the house may do this", "ask an owner").WithReason(fault.OwnersOnly)
}

// Members returns up to limit members of the scope's house after a cursor, oldest first.
func (h *Houses) Members(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []Member, err error) {
	if after.ID == "" { // the query needs a uuid, because agents have uuids
		after.ID = uuid.Nil.String()
	}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := h.q.ListMembers(ctx, tx, query.ListMembersParams{HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit)})
		for _, r := range rows {
			list = append(list, Member{Role: r.Role, JoinedAt: r.JoinedAt,
				Agent: Agent{ID: r.ID, Kind: r.Kind, Runtime: db.Zero(r.Runtime), Name: db.Zero(r.Name), Handle: r.Handle, CreatedAt: r.CreatedAt}})
		}
		return err
	})
	return list, err
}
