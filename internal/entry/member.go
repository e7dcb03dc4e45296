package entry

import "github.com/arbe-dev/arbe/internal/fault"

// The entries in this file record who may do what in a house. They are written to the house's primary thread in the
// transaction that changes the rows. Each holds people's names at that time, so that it stays readable after they leave.

// MemberJoined records that a person joined a house with an invite.
type MemberJoined struct {
	AgentID string `json:"agent_id"`
	Name    string `json:"name"`
	// Role is "owner" or "member".
	Role string `json:"role"`
	// InviteID is the invite, InvitedBy the name of the owner who made it.
	InviteID  string `json:"invite_id"`
	InvitedBy string `json:"invited_by"`
}

func (MemberJoined) Type() string { return "signal.house.member_joined" }

func (m MemberJoined) Validate() error { return needsAgent(m.AgentID) }

// Plain returns a sentence: "Bob joined as a member, invited by Ada".
func (m MemberJoined) Plain() string {
	text := m.Name + " joined as " + withArticle(m.Role)
	if m.InvitedBy != "" {
		text += ", invited by " + m.InvitedBy
	}
	return text
}

// MemberRemoved records that a person or a bot was removed from a house by its author, or that its author left.
type MemberRemoved struct {
	AgentID string `json:"agent_id"`
	Name    string `json:"name"`
	// By is the name of the owner who removed them; empty if they left.
	By string `json:"by,omitempty"`
}

func (MemberRemoved) Type() string { return "signal.house.member_removed" }

func (m MemberRemoved) Validate() error { return needsAgent(m.AgentID) }

// Plain returns a sentence: "Ada removed Bob", "Bob left".
func (m MemberRemoved) Plain() string {
	if m.By == "" {
		return m.Name + " left"
	}
	return m.By + " removed " + m.Name
}

// RoleChanged records that a person has a new role in a house.
type RoleChanged struct {
	AgentID string `json:"agent_id"`
	Name    string `json:"name"`
	// From and To are "owner" or "member".
	From string `json:"from"`
	To   string `json:"to"`
	// By is the name of the owner who changed it.
	By string `json:"by"`
}

func (RoleChanged) Type() string { return "signal.house.role_changed" }

func (r RoleChanged) Validate() error {
	if r.To == "" {
		return fault.New(fault.Invalid, "to: it is empty", "give the new role")
	}
	return needsAgent(r.AgentID)
}

// Plain returns a sentence: "Ada made Bob an owner".
func (r RoleChanged) Plain() string { return r.By + " made " + r.Name + " " + withArticle(r.To) }

// Invited records that an owner created an invite. It does not contain the link, because every member can read the log,
// and only owners may let people in.
type Invited struct {
	InviteID string `json:"invite_id"`
	// Role is the role of the person who accepts it: "owner" or "member".
	Role string `json:"role"`
	// Note is the owner's note on whom it is for, if any.
	Note string `json:"note,omitempty"`
	// By is the owner's name.
	By string `json:"by"`
}

func (Invited) Type() string { return "signal.house.invited" }

func (i Invited) Validate() error { return needsInvite(i.InviteID) }

// Plain returns a sentence: "Ada made an invite for a member: Bob from work".
func (i Invited) Plain() string {
	text := i.By + " made an invite for " + withArticle(i.Role)
	if i.Note != "" {
		text += ": " + i.Note
	}
	return text
}

// InviteRevoked records that an owner revoked an invite before it was used.
type InviteRevoked struct {
	InviteID string `json:"invite_id"`
	Role     string `json:"role"`
	Note     string `json:"note,omitempty"`
	By       string `json:"by"`
}

func (InviteRevoked) Type() string { return "signal.house.invite_revoked" }

func (i InviteRevoked) Validate() error { return needsInvite(i.InviteID) }

// Plain returns a sentence: "Ada revoked an invite for a member: Bob from work".
func (i InviteRevoked) Plain() string {
	text := i.By + " revoked an invite for " + withArticle(i.Role)
	if i.Note != "" {
		text += ": " + i.Note
	}
	return text
}

func needsAgent(id string) error {
	if id == "" {
		return fault.New(fault.Invalid, "agent_id: it is empty", "give the id of the person or bot")
	}
	return nil
}

func needsInvite(id string) error {
	if id == "" {
		return fault.New(fault.Invalid, "invite_id: it is empty", "give the id of the invite")
	}
	return nil
}

// withArticle returns a role with its article: "an owner".
func withArticle(role string) string {
	if role == "owner" {
		return "an owner"
	}
	return "a " + role
}
