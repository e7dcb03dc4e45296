package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// confirmation is the form that redeems a login link.
type confirmation struct {
	Theme, Token string
	// Agent is the person whom the link logs in. Me is the person who is currently logged in, if any.
	Agent, Me *arbev1.Agent
}

// Other reports whether somebody else is logged in.
func (c confirmation) Other() bool { return c.Me != nil && c.Me.Id != c.Agent.Id }
