package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Colours are the escape sequences that only colour the text after them.
var Colours = lazyregexp.New("\x1b\\[[0-9;:]*m")

// Printable makes other people's text safe for a terminal, because invisible characters can change what the terminal shows
// and does. It drops colours, and replaces every other invisible character except newline and tab by a mark.
func Printable(text string) string {
	return Visible(Colours.ReplaceAllString(text, ""), func(r rune) string {
		switch r {
		case '\n', '\t':
			return string(r)
		case '\r':
			return ""
		}
		return "\uFFFD"
	})
}

// PrintableLine is like [Printable], for a cell of a table, which a newline or a tab would end. It cuts nothing; see [OneLine].
func PrintableLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(text))
}
