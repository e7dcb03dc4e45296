package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// membersView is the page of the people in a house.
type membersView struct {
	Layout  layout
	People  []*arbev1.Member
	Invites []*arbev1.Invite
	// Link is the link of an invite that has just been made, and Made is the invite.
	Link string
	Made *arbev1.Invite
	// Note, Role and Days are the form's values, and Problems its errors.
	Note, Role, Days string
	Problems         problems
}

func (v membersView) owners() (n int) {
	for _, m := range v.People {
		if m.Role == "owner" {
			n++
		}
	}
	return n
}

// inviteDays are the lifetimes of an invite that the form offers, in days.
var inviteDays = []struct{ Days, Word string }{{"1", "a day"}, {"7", "a week"}, {"30", "30 days"}}

// invitation is the page that an invite's link opens.
type invitation struct {
	Theme, Token string
	For          *arbev1.GetInviteResponse
	// Me is the person who is logged in. If it is nil, a new person joins under Name.
	Me       *arbev1.Agent
	Name     string
	Problems problems
}
