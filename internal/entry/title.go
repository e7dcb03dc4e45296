package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// maxTitle is the longest title of [Title] in bytes.
const maxTitle = 80

// openings matches the beginning of a first text that does not belong to its subject: mentions, and the mark of a command.
var openings = lazyregexp.New(`^\s*(?:(?:@[A-Za-z0-9-]+[\s,:]+)+|!\s*|/(?:run|delegate)\s+(?:@[A-Za-z0-9-]+\s+)?|/think\s+\S+\s+)+`)

// Title returns a name for a thread that begins with a text: the first line, without its opening.
func Title(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(text, "")), "\n")
	line = openings.ReplaceAllString(Visible(line, func(rune) string { return " " }), "")
	line = strings.TrimSpace(line)
	name := Clip(line, maxTitle)
	if at := strings.LastIndexByte(name, ' '); at > 0 && name != line {
		return name[:at] + "…" // do not cut a word: half of a secret would not be recognized as one
	}
	return name
}
