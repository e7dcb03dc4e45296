package subscription

import (
	"regexp"
	"strings"
)

// expression returns the regular expression of a pattern, in which * is one word of a path and ** any number of words.
// It uses only syntax that Go and Postgres read alike, because both match with it.
func expression(pattern string) string {
	var b strings.Builder
	b.WriteByte('^')
	between := "" // the separator before the next word
	for i, word := range strings.Split(pattern, "/") {
		if word == "**" {
			if i == 0 {
				b.WriteString("([^/]+/)*") // ends with a slash if it matches any word
			} else {
				b.WriteString("(/[^/]+)*")
				between = "/"
			}
			continue
		}
		b.WriteString(between)
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(word), `\*`, "[^/]+"))
		between = "/"
	}
	if pattern == "**" {
		b.WriteString("[^/]+")
	}
	b.WriteByte('$')
	return b.String()
}
