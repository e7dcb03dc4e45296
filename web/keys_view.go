package web

import (
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keysView is the page of a house's API keys.
type keysView struct {
	Layout layout
	// Keys are the valid keys, Ended the expired and revoked ones.
	Keys, Ended []*arbev1.APIKey
	// Holders are the people and bots of the house by id, Bots those for whom an owner may create a key.
	Holders map[string]*arbev1.Agent
	Bots    []*arbev1.Agent
	// More is the token of the next page of keys; empty on the last page.
	More string
	// Key is a key that was just created. It is shown only this once.
	Key string
	// NewID is the id of the form's key, so that sending the form twice creates one key.
	NewID string
	// Name, For and Days are the form's values, Problems its errors.
	Name, For, Days string
	Problems        problems
}

// keyDays are the lifetimes of a key that the form offers, in days. A key that never expires has a value of its own, so that
// a form that lacks the field does not create one.
var keyDays = []struct{ Days, Word string }{{"30", "30 days"}, {"90", "90 days"}, {"365", "a year"}, {noEnd, "until it is revoked"}}

const (
	// noEnd is the choice of a key that is valid until it is revoked.
	noEnd = "never"
	// maxKeyDays is the longest other choice.
	maxKeyDays = 36500
)

// holder returns the name of the person or bot that a key belongs to.
func (v keysView) holder(k *arbev1.APIKey) string { return v.nameOf(k.AgentId) }

// maker returns the name of the owner who created a key for a bot, or "" if the key's holder created it.
func (v keysView) maker(k *arbev1.APIKey) string {
	switch k.CreatedBy {
	case k.AgentId:
		return ""
	case "":
		return "somebody" // the key is older than the record of makers
	}
	return v.nameOf(k.CreatedBy)
}

func (v keysView) nameOf(agent string) string {
	if a := v.Holders[agent]; a != nil {
		return accountName(a)
	}
	return formerMember
}

// mayRevoke reports whether the reader may revoke a key.
func (v keysView) mayRevoke(k *arbev1.APIKey) bool {
	return v.Layout.isOwner() || k.AgentId == v.Layout.Me.Id
}

// keyEnd says why a key is no longer valid. It returns "" for a valid key.
func keyEnd(k *arbev1.APIKey) string {
	switch {
	case k.RevokedAt != nil:
		return "Revoked " + day(when(k.RevokedAt))
	case k.ExpiresAt != nil && !when(k.ExpiresAt).After(time.Now()):
		return "Expired " + day(when(k.ExpiresAt))
	}
	return ""
}
