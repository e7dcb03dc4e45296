package house

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// InviteLife is how long an invite is valid by default, MaxInviteLife the longest.
	InviteLife    = 7 * 24 * time.Hour
	MaxInviteLife = 30 * 24 * time.Hour
	// MaxPendingInvites is how many valid invites a house may have at a time.
	MaxPendingInvites = 100
	// MaxNote is the longest note of an invite, in characters.
	MaxNote = 200
)

// Invite is a link with which one person may join a house.
type Invite struct {
	ID, House string
	// Role is the role that the person gets. Note names the person whom the owner invites.
	Role, Note string
	// By is the owner who created it.
	By, ByName           string
	CreatedAt, ExpiresAt time.Time
}

// Invitation is the offer of an invite's token.
type Invitation struct {
	House, HouseName string
	Role             string
	// InvitedBy is the name of the owner who created the invite.
	InvitedBy string
	ExpiresAt time.Time
}

// CreateInvite creates an invite to the scope's house, whose agent is an owner, and returns its token. The token is
// returned only this once, because the database stores its hash. lasts is how long the invite is valid; zero is
// [InviteLife]. If too many invites of the house are pending, the error is a [fault.Exhausted].
func (h *Houses) CreateInvite(ctx context.Context, scope db.Scope, role, note string, lasts time.Duration) (token string, made Invite, err error) {
	if note, err = entry.Name("note", note, MaxNote); err != nil {
		return "", Invite{}, err
	}
	role, lasts = cmp.Or(role, Regular), cmp.Or(lasts, InviteLife)
	if lasts < 0 || lasts > MaxInviteLife {
		return "", Invite{}, fault.New(fault.Invalid, "expires_in: an invite is valid for 30 days at most", "choose a shorter time")
	}
	token = strings.ToLower(rand.Text() + rand.Text())
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := h.mayInviteTx(ctx, tx, scope); err != nil {
			return err
		}
		r, err := h.q.InsertInvite(ctx, tx, query.InsertInviteParams{
			HouseID: scope.House, Hash: inviteHash(token), Role: role, Note: note, CreatedBy: scope.Agent, Lasts: lasts.Seconds(),
		})
		if err != nil {
			return err
		}
		name, err := h.nameOf(ctx, tx, scope.Agent)
		if err != nil {
			return err
		}
		made = Invite{ID: r.ID, House: r.HouseID, Role: r.Role, Note: r.Note, By: r.CreatedBy, ByName: name, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
		return h.threads.RecordInHouseTx(ctx, tx, scope, entry.Invited{InviteID: r.ID, Role: r.Role, Note: r.Note, By: name})
	})
	if err != nil {
		return "", Invite{}, err
	}
	return token, made, nil
}

// mayInviteTx refuses those who are not owners, and too many pending invites.
func (h *Houses) mayInviteTx(ctx context.Context, tx pgx.Tx, scope db.Scope) error {
	// Lock the member: otherwise an owner who is demoted or removed at the same time would leave an invite behind.
	if is, err := h.q.LockMember(ctx, tx, scope.House, scope.Agent); errors.Is(err, pgx.ErrNoRows) || err == nil && is != Owner {
		return noOwner()
	} else if err != nil {
		return err
	}
	if err := h.q.DeleteEndedInvites(ctx, tx, scope.House); err != nil {
		return err
	}
	pending, err := h.q.CountPendingInvites(ctx, tx, scope.House)
	if err == nil && pending >= MaxPendingInvites {
		err = fault.Newf(fault.Exhausted, "revoke some of them", "the house already has %d pending invites", pending).WithReason(fault.LimitReached)
	}
	return err
}

// Invites returns up to limit pending invites to the scope's house after a cursor, oldest first.
func (h *Houses) Invites(ctx context.Context, scope db.Scope, after db.Cursor, limit int) (list []Invite, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := h.q.ListPendingInvites(ctx, tx, query.ListPendingInvitesParams{HouseID: scope.House, AfterTime: after.Time, AfterID: after.ID, MaxRows: int32(limit)})
		for _, r := range rows {
			list = append(list, Invite{ID: r.ID, House: r.HouseID, Role: r.Role, Note: r.Note, By: r.CreatedBy, ByName: r.CreatedByName,
				CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt})
		}
		return err
	})
	return list, err
}

// RevokeInvite revokes an invite to the scope's house. It does nothing if the invite has already ended, so that a retry
// is harmless.
func (h *Houses) RevokeInvite(ctx context.Context, scope db.Scope, id string) error {
	return h.db.In(ctx, scope, func(tx pgx.Tx) error {
		r, err := h.q.RevokeInvite(ctx, tx, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fault.New(fault.NotFound, "id: there is no such invite in this house", "list the pending invites of the house")
		case err != nil || !r.Revoked:
			return err
		}
		by, err := h.nameOf(ctx, tx, scope.Agent)
		if err != nil {
			return err
		}
		return h.threads.RecordInHouseTx(ctx, tx, scope, entry.InviteRevoked{InviteID: id, Role: r.Role, Note: r.Note, By: by})
	})
}

// Invitation returns the offer of an invite's token, without using the invite. A token that cannot be used is a
// [fault.Unauthenticated], which gives the reason only if the token was once valid. The caller needs no credential,
// because the person who has the link is not in the house yet.
func (h *Houses) Invitation(ctx context.Context, token string) (Invitation, error) {
	found, err := h.findInvite(ctx, token)
	if err == nil {
		err = usable(found.Status)
	}
	if err != nil {
		return Invitation{}, err
	}
	return Invitation{House: found.HouseID, HouseName: found.HouseName, Role: found.Role, InvitedBy: found.InvitedBy, ExpiresAt: found.ExpiresAt}, nil
}

func (h *Houses) findInvite(ctx context.Context, token string) (query.FindInviteRow, error) {
	found, err := h.q.FindInvite(ctx, h.db.Pool(), inviteHash(token))
	if errors.Is(err, pgx.ErrNoRows) {
		return found, usable("")
	}
	return found, db.Explain(err)
}

// usable returns an error that says why an invite of this status cannot be used; nil if it can.
func usable(status string) error {
	what := map[string]string{"ok": "", "used": "this invite was already used", "revoked": "this invite was revoked", "expired": "this invite has expired"}
	text, known := what[status]
	if !known {
		text = "this invite is not known"
	}
	if text == "" {
		return nil
	}
	return fault.New(fault.Unauthenticated, text, "ask an owner of the house for a new one")
}

// Join adds an agent to the house of an invite's token and uses the invite up. If the agent is already in the house,
// nothing changes and the invite stays valid, so a retry is harmless. Errors: those of [Houses.Invitation].
func (h *Houses) Join(ctx context.Context, agentID, token string) (joined House, err error) {
	found, err := h.findInvite(ctx, token)
	if err != nil {
		return House{}, err
	}
	scope := db.Scope{House: found.HouseID, Agent: agentID}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if joined, err = h.get(ctx, tx, found.HouseID); err != nil || joined.Role != "" {
			return err
		}
		name, err := h.nameOf(ctx, tx, agentID)
		if err != nil {
			return err
		}
		if joined, err = h.joinTx(ctx, tx, scope, token, found, name); fault.CodeOf(err) == fault.Unauthenticated {
			// The same agent may have used it in another call at the same time. This is then a retry, which must not
			// fail.
			if again, failed := h.get(ctx, tx, found.HouseID); failed == nil && again.Role != "" {
				joined, err = again, nil
			}
		}
		return err
	})
	return joined, err
}

// JoinAsNew adds a new person to the installation and to the house of an invite's token, and uses the invite up. login
// runs in the same transaction: if it fails, nothing changes. Otherwise the invite would be used up by a person who
// cannot log in. Errors: those of [Houses.Invitation].
func (h *Houses) JoinAsNew(ctx context.Context, token, name string, login func(tx pgx.Tx, agentID string) error) (joined House, person Agent, err error) {
	if name, err = entry.RequiredName("name", name, MaxName); err != nil {
		return House{}, Agent{}, err
	}
	found, err := h.findInvite(ctx, token)
	if err != nil {
		return House{}, Agent{}, err
	}
	scope := db.Scope{House: found.HouseID, Agent: uuid.NewString()}
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := h.q.InsertAgent(ctx, tx, query.InsertAgentParams{ID: scope.Agent, Kind: "human", Name: &name}); err != nil {
			return err
		}
		if joined, err = h.joinTx(ctx, tx, scope, token, found, name); err != nil {
			return err
		}
		if person, err = agent(h.q.GetAgent(ctx, tx, scope.Agent)); err != nil {
			return err
		}
		return login(tx, scope.Agent)
	})
	return joined, person, err
}

// joinTx uses an invite up and makes the scope's agent a member. If several agents use it at once, one succeeds.
func (h *Houses) joinTx(ctx context.Context, tx pgx.Tx, scope db.Scope, token string, found query.FindInviteRow, name string) (joined House, err error) {
	taken, err := h.q.TakeInvite(ctx, tx, found.InviteID)
	if err != nil {
		return House{}, err
	}
	if taken == 0 { // read the status again, because found has it from before the transaction
		now, err := h.q.FindInvite(ctx, tx, inviteHash(token))
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return House{}, usable("")
		case err != nil:
			return House{}, err
		}
		return House{}, usable(now.Status)
	}
	if err := h.q.InsertMember(ctx, tx, scope.House, scope.Agent, found.Role); err != nil {
		return House{}, err
	}
	if joined, err = h.get(ctx, tx, scope.House); err != nil {
		return House{}, err
	}
	return joined, h.threads.RecordInHouseTx(ctx, tx, scope, entry.MemberJoined{AgentID: scope.Agent, Name: name, Role: found.Role, InviteID: found.InviteID, InvitedBy: found.InvitedBy})
}

// inviteHash returns the stored form of an invite's token, so that nobody can join with a copy of the database. It
// needs no salt, because the token is random.
func inviteHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
