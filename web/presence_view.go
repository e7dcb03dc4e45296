package web

import (
	"cmp"
	"strings"

	"github.com/arbe-dev/arbe/web/transcript"
)

// maxHere limits the names of people who have the thread open; the others are counted.
const maxHere = 3

// presenceText returns a sentence such as "Ada and Bob are here".
func presenceText(others []transcript.Author) string {
	var names []string
	for _, a := range others {
		names = append(names, clip(cmp.Or(a.Name, "Somebody"), 40))
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0] + " is here"
	case n > maxHere:
		return strings.Join(names[:maxHere], ", ") + " and " + decimal(n-maxHere) + " more are here"
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " are here"
	}
}
