package transcript

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxShown is how much of a text a page shows at first, in bytes.
	maxShown = 12 << 10
	// maxLines is how many lines of a chat a page shows at first. Of a chat that exceeds one of the two, it shows at most
	// foldedText bytes and markup.FoldedLines lines.
	maxLines, foldedText = 200, 2 << 10
	// maxAnswer is the longest answer of a bot that a page shows whole, in bytes, so that what somebody has watched stays as it is.
	maxAnswer = 64 << 10
	// MaxNote limits the text of a note, and MaxWord a name in it, in bytes.
	MaxNote, MaxWord = 2 << 10, 200
)

// isLong reports whether a page folds a text.
func isLong(text string) bool { return len(text) > maxShown || strings.Count(text, "\n") > maxLines }

// isVeryLong reports whether a page folds what a bot has said.
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

// indented returns JSON with indentation. ok is false if it is not valid, or if it would become too large: it may be much larger
// than what it is made of, because the indentation of each value grows with its depth.
func indented(text []byte) (pretty string, ok bool) {
	const maxSize, maxDepth = 64 << 10, 32
	if len(text) > maxSize {
		return "", false
	}
	depth := 0
	for _, c := range text {
		switch c { // brackets in strings count too, because the result only needs to be safe
		case '[', '{':
			depth++
		case ']', '}':
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
