package main

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// uncoloured ends a colour.
const uncoloured = "\x1b[0m"

// recoloured changes a text without its colours, and then gives all of it the colour of its beginning.
func recoloured(text string, change func(plain string) string) string {
	colour, plain := entry.Colours.FindString(text), change(uncolour(text))
	if colour == "" || !strings.HasPrefix(text, colour) || plain == "" {
		return plain
	}
	return colour + plain + uncoloured
}

// uncolour returns a text without its colours.
func uncolour(text string) string {
	if !strings.Contains(text, "\x1b") { // as almost always
		return text
	}
	return entry.Colours.ReplaceAllString(text, "")
}
