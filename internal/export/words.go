package export

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// EncodeJSON writes a value as one line of JSON. It does not escape HTML, because the output is not for a browser.
func EncodeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Thought returns a line that says how much a model thought, or none if the model showed no thinking.
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
