package web

import (
	"cmp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadFieldsView is the form of a thread's name or tags after it was refused, with what was typed.
type threadFieldsView struct {
	Layout   layout
	Thread   *arbev1.Thread
	Problems problems
	// Name and Tags are the values of the form. Those that the form does not have are nil.
	Name, Tags *string
}

func tagsNow(t *arbev1.Thread) string {
	return cmp.Or(joinTags(t.Tags), "none")
}
