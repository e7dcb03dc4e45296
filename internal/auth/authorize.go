package auth

import (
	"context"
	"log/slog"
	"slices"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
)

// Action is what a principal wants to do to a target.
type Action int

// The actions. The house is the only privacy boundary between people: its members may read and write everything in it,
// and its owners may change the house itself.
const (
	// Read: see the target.
	Read Action = iota
	// Say: append to the target's log.
	Say
	// CallModel: call a model in the name of the target's run.
	CallModel
	// Write: run something on the target, change it or delete it.
	Write
	// Own: change the house or its members.
	Own
	// CreateCredential: create one's own credential for the target.
	CreateCredential
	// CreateBotCredential: create a credential for a bot.
	CreateBotCredential
	// RevokeCredential: revoke a credential other than the one shown.
	RevokeCredential
	// Invite: create a link with which someone joins the house.
	Invite
	// Leave: stop being a member.
	Leave
	// Govern: change who is in it, and as what.
	Govern
)

// requirements are what an action requires besides membership of the house.
var requirements = map[Action]struct {
	// scope is the scope with which a thread token may do it. Without one, no token may.
	scope string
	// owner: only an owner of the house may do it.
	owner bool
	// unlimited: only a credential that is valid for all houses may do it. A leaked credential for one house must not
	// be able to create another that outlives it.
	unlimited bool
	// run: only the token of a run may do it.
	run bool
}{
	Read:                {scope: StreamRead},
	Say:                 {scope: StreamWrite},
	CallModel:           {scope: ModelCall, run: true},
	Write:               {},
	Own:                 {owner: true},
	CreateCredential:    {unlimited: true},
	CreateBotCredential: {unlimited: true, owner: true},
	// A leaked credential for one house must not be able to end the others that work in it.
	RevokeCredential: {unlimited: true, owner: true},
	// A leaked credential for one house must not be able to add members, who stay after it has ended.
	Invite: {unlimited: true, owner: true},
	Leave:  {unlimited: true},
	Govern: {unlimited: true, owner: true},
}

// Target is what an action is done to: [Account], [House], [Thread], [Environment], [Sandbox], [Artifact] or [Key].
type Target struct{ kind, id string }

// Account is the agent's own account: their houses and how they log in. Its scope names a house only if the credential
// is limited to one; such a credential may only read.
var Account = Target{kind: "account"}

// The kinds of target that are treated specially.
const (
	houseKind    = "house"
	artifactKind = "artifact"
)

// House is the target for the house with this id.
func House(id string) Target { return Target{houseKind, id} }

// Thread is the target for the thread with this id.
func Thread(id string) Target { return Target{"thread", id} }

// Environment is the target for the environment with this id.
func Environment(id string) Target { return Target{"environment", id} }

// Sandbox is the target for the sandbox with this id.
func Sandbox(id string) Target { return Target{"sandbox", id} }

// Artifact is the target for the artifact with this id. A thread token reaches the artifacts of its thread.
func Artifact(id string) Target { return Target{artifactKind, id} }

// Key is the target for the API key with this id. Its holder owns it.
func Key(id string) Target { return Target{"API key", id} }

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
			if at, err = askOne(ctx, a, target.word()+" "+p.Agent, s, a.memberships); err != nil {
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

// membership is the house of a target and the principal's role there, and for an artifact also the thread that it comes
// from. Without a role the target does not exist for the principal.
type membership struct{ house, role, thread string }

// fixedMembership returns the membership if it is certain without a query, because a thread token can do nothing
// elsewhere, and what it can do in its house was looked up when it was shown.
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

// missing returns the same error for a target that does not exist and for someone else's, so that nobody learns what
// other houses have.
func missing(t Target) error {
	next := map[string]string{
		houseKind:     "list your houses with: arbe house list",
		"thread":      "list the threads with: arbe thread list",
		"environment": "list the house's environments, or leave it out to use the default",
		"sandbox":     "see the thread's sandbox with: arbe thread show",
		"API key":     "list the house's keys with: arbe key list",
		artifactKind:  "list the artifacts with: arbe artifact list",
	}[t.kind]
	id := t.id
	// It is shortened, because it may be anything that the caller sent.
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return fault.Newf(fault.NotFound, next, "there is no %s %q", t.kind, id)
}
