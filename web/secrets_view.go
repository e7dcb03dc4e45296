package web

import (
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// secretsView is the page of a house's secrets. It never contains a value: a form that failed comes back without its value.
type secretsView struct {
	Layout  layout
	Secrets []*arbev1.Secret
	// Name is the form's value, and Problems its errors.
	Name     string
	Problems problems
}

// uses says in a sentence what uses a secret. It returns "" if nothing does.
func uses(s *arbev1.Secret) string {
	var all []string
	for _, u := range s.Uses {
		all = append(all, strings.TrimSpace(u.Kind+" "+u.Name))
	}
	return clip(strings.Join(all, ", "), maxText)
}

// maxText limits a text that lists many names.
const maxText = 300
