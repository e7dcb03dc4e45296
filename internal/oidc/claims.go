package oidc

import "encoding/json"

// claims are the claims that a login needs.
type claims struct {
	Email    string   `json:"email"`
	Verified verified `json:"email_verified"`
	Name     string   `json:"name"`
	// Party is the program for which the provider issued the token.
	Party string `json:"azp"`
}

// verified is a bool. Some providers write it as a text.
type verified bool

// UnmarshalJSON reads true and "true" as true, and everything else as false.
func (v *verified) UnmarshalJSON(text []byte) error {
	*v = string(text) == "true" || string(text) == `"true"`
	return nil
}

// groups returns the groups in a claim, and whether there is such a claim. One group may be a text instead of a list.
func (claims) groups(of interface{ Claims(any) error }, claim string) (groups []string, found bool) {
	var all map[string]json.RawMessage
	if of.Claims(&all) != nil || all[claim] == nil {
		return nil, false
	}
	var one string
	if json.Unmarshal(all[claim], &one) == nil {
		return []string{one}, true
	}
	return groups, json.Unmarshal(all[claim], &groups) == nil
}
