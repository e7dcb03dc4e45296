package auth

import (
	"github.com/arbe-dev/arbe/internal/fault"
)

// Action is an action of a principal on a target.
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
	// Own: do what only owners may, such as changing the house.
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
	// Govern: change members and their roles, or delete the house.
	Govern
)

// requirements are the requirements of actions besides membership of the house.
var requirements = map[Action]struct {
	// scope is the scope that a thread token needs for the action. Without one, no token may do it.
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

// Target is the object of an action: [Account], [House], [Thread], [Environment], [Sandbox], [Artifact] or [Key].
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

// membership is the house of a target and the principal's role there, and for an artifact also the thread that it comes
// from. Without a role the target does not exist for the principal.
type membership struct{ house, role, thread string }

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
