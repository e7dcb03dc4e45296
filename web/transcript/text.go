package transcript

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxShown limits how much of a text a page shows at first, in bytes.
	maxShown = 12 << 10
	// maxArguments is the length in bytes up to which a tool call's arguments are parsed as JSON. maxSummary limits how much
	// of them a page shows on one line.
	maxArguments, maxSummary = 16 << 10, 160
	// maxLines limits the lines of a chat that a page shows at first. If a chat exceeds either limit, the page shows at most
	// foldedText bytes and markup.FoldedLines lines of it.
	maxLines, foldedText = 200, 2 << 10
	// maxFinished is roughly how much finished HTML of a part a page gets at once, and how much it keeps before the beginning
	// is removed. Otherwise a model that writes very fast would freeze the browsers of all watchers.
	maxFinished = 128 << 10
	// maxAnswer is the length in bytes up to which a page shows a bot's answer unfolded. A page with an unfinished answer keeps
	// no more of it, so an answer that somebody has watched whole does not change when it is complete.
	maxAnswer = maxFinished
	// MaxNote limits the text of a note, and MaxWord a name in it, in bytes.
	MaxNote, MaxWord = 2 << 10, 200
)

// isLong reports whether a page folds a text.
func isLong(text string) bool { return len(text) > maxShown || strings.Count(text, "\n") > maxLines }

// isVeryLong reports whether a page folds a bot's message.
func isVeryLong(text string) bool { return len(text) > maxAnswer }

// beginning returns the beginning of a long text, of whole lines if possible.
func beginning(text string) string {
	lines := strings.SplitAfterN(text, "\n", markup.FoldedLines+1)
	text = strings.Join(lines[:min(len(lines), markup.FoldedLines)], "")
	if len(text) <= foldedText {
		return text
	}
	if end := strings.LastIndexByte(text[:foldedText], '\n'); end > 0 {
		return text[:end+1]
	}
	return entry.Clip(text, foldedText)
}

// indented returns JSON with indentation. ok is false if it is not valid, or if the result would be too large: indentation
// grows with the depth of each value.
func indented(text []byte) (pretty string, ok bool) {
	const maxSize, maxDepth = 64 << 10, 32
	if len(text) > maxSize {
		return "", false
	}
	depth, quoted, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			quoted, escaped = c != '"', c == '\\'
		case c == '"':
			quoted = true
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		}
		if depth > maxDepth {
			return "", false
		}
	}
	var b bytes.Buffer
	err := json.Indent(&b, text, "", "  ")
	return b.String(), err == nil
}

// Note is one small line.
type Note struct {
	// Class is the status class of the icon, which may be empty.
	Class, Icon, Words string
}

// note returns a Note with limited text.
func note(class, icon, words string) Note { return Note{class, icon, entry.Clip(words, MaxNote)} }
