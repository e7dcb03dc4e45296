package export

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// EncodeJSON writes a value as one line of JSON. It does not escape HTML, because the output is not for a browser.
func EncodeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Colours are the escape sequences that only colour the text after them.
var Colours = lazyregexp.New("\x1b\\[[0-9;:]*m")

// Printable makes other people's text safe for a terminal, because invisible characters can change what the terminal shows
// and does. It drops colours, and replaces every other invisible character except newline and tab by a mark.
func Printable(text string) string {
	return entry.Visible(Colours.ReplaceAllString(text, ""), func(r rune) string {
		switch r {
		case '\n', '\t':
			return string(r)
		case '\r':
			return ""
		}
		return "\uFFFD"
	})
}

// OneLine is like [Printable], for a cell of a table, which a newline or a tab would end.
func OneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(text))
}

// Thought returns a line that says how much a model thought. It returns none if it showed no thinking.
func Thought(text string) []string {
	switch words := len(strings.Fields(text)); words {
	case 0:
		return nil
	case 1:
		return []string{"thought 1 word"}
	default:
		return []string{fmt.Sprintf("thought %d words", words)}
	}
}

// Reactions formats the reactions to an entry on one line: "👍 2  🎉 1".
func Reactions(s *arbev1.EntryState) string {
	var parts []string
	for _, r := range s.GetReactions() {
		parts = append(parts, fmt.Sprintf("%s %d", r.GetEmoji(), len(r.GetAgentIds())))
	}
	return strings.Join(parts, "  ")
}
