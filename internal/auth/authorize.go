package auth

import (
	"context"
	"log/slog"
	"slices"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
)

// Authorize checks whether the context's principal may do action to target, and returns the scope in which to do it. A
// target that does not exist and one in a house that the principal is not in give the same [fault.NotFound]. A member
// who is not an owner, or whose credential is too narrow, gets a [fault.Forbidden]. Authorize asks the database only if
// the answer is not in memory or would be a refusal; see [Auth.Listen].
func (a *Auth) Authorize(ctx context.Context, action Action, target Target) (db.Scope, error) {
	p, err := PrincipalFrom(ctx)
	if err != nil {
		return db.Scope{}, err
	}
	at, certain := p.fixedMembership(target)
	if !certain {
		s := membershipKey{target, p.Agent}
		known := false
		if at, known = a.heldMembership(s); !known || p.authorize(action, target, at) != nil {
			if at, err = askOne(ctx, a, target.topic()+" "+p.Agent, s, a.memberships); err != nil {
				return db.Scope{}, err
			}
		}
	}
	if err := p.authorize(action, target, at); err != nil {
		return db.Scope{}, err
	}
	target.log(ctx, p, at)
	return db.Scope{House: at.house, Agent: p.Agent}, nil
}

// log adds the agent and the target to all log lines of the request.
func (t Target) log(ctx context.Context, p Principal, at membership) {
	about := []slog.Attr{slog.String("agent", p.Agent), slog.String("house", at.house)}
	switch t.kind {
	case "thread", "environment", "sandbox", artifactKind:
		about = append(about, slog.String(t.kind, t.id))
	}
	logging.Add(ctx, about...)
}

// fixedMembership returns the membership of a thread token, which is certain without a query: the token can do nothing
// in other houses, and its role in its own was looked up with the token.
func (p Principal) fixedMembership(target Target) (membership, bool) {
	switch {
	case p.Thread != "" && target.kind != artifactKind:
		return membership{house: p.House, role: p.role}, true
	case target == Account:
		return membership{house: p.House, role: "owner"}, true
	}
	return membership{}, false
}

// authorize is the complete permission policy.
func (p Principal) authorize(action Action, target Target, at membership) error {
	d := requirements[action]
	if target.kind == artifactKind && p.Thread != "" && p.Thread == at.thread {
		target = Thread(p.Thread)
	}
	switch {
	case p.Thread != "" && target != Thread(p.Thread):
		return fault.Newf(fault.Forbidden, "use this token for its own thread, and another credential for this", "this token is valid only for thread %q", p.Thread).WithReason(fault.TokenLimited)
	case p.Thread != "" && d.scope == "":
		return fault.Newf(fault.Forbidden, "use another credential for this", "this token of thread %q may only read and append", p.Thread).WithReason(fault.TokenLimited)
	case p.Thread != "" && !slices.Contains(p.Scopes, d.scope):
		return fault.Newf(fault.Forbidden, "ask for a token with this scope", "this token of thread %q lacks the scope %s", p.Thread, d.scope).WithReason(fault.TokenLimited)
	case at.role == "", p.House != "" && p.House != at.house:
		return missing(target)
	case d.run && p.Run == 0:
		return fault.New(fault.Forbidden, "only the runner of a coding agent may do this", "use the token of its run").WithReason(fault.TokenLimited)
	case p.House != "" && (d.unlimited || target == Account && action != Read):
		return fault.New(fault.Forbidden, "this credential is limited to one house", "use one that is valid for all your houses").WithReason(fault.TokenLimited)
	case d.owner && at.role != "owner":
		return fault.New(fault.Forbidden, "only an owner of the house may do this", "ask an owner; arbe house list shows your role").WithReason(fault.OwnersOnly)
	}
	return nil
}
