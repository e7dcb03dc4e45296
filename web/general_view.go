package web

import (
	"github.com/a-h/templ"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// generalView is the page of a house itself. Name, Environment and Confirm are the values of its two forms.
type generalView struct {
	Layout                     layout
	Environments               []*arbev1.Environment
	Name, Environment, Confirm string
	Problems, DeleteWrong      problems
	Saved                      bool
}

// may makes a field read-only for readers who are not owners.
func (v generalView) may(attributes templ.Attributes) templ.Attributes {
	if !v.Layout.isOwner() {
		attributes["readonly"] = true
	}
	return attributes
}
