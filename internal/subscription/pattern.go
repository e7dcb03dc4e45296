package subscription

import (
	"regexp"
	"strings"
)

// expression is the regular expression of a pattern: * is one word of a path, ** any number of them. It means
// the same to Go and to Postgres.
func expression(pattern string) string {
	var b strings.Builder
	b.WriteByte('^')
	between := "" // what comes before the next word
	for i, word := range strings.Split(pattern, "/") {
		if word == "**" {
			if i == 0 {
				b.WriteString("([^/]+/)*") // ends with the slash, when there is one
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
