package entry

import (
	"strings"
	"unicode"
)

// Clip shortens a text of more than n bytes to its first n, up to the end of a character, and an ellipsis. A shorter text
// stays unchanged.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// OneLine returns a text on one line of at most n bytes: white space and control characters of ASCII become single spaces. It
// is for lists and messages. Text for a terminal needs [Visible] as well.
func OneLine(text string, n int) string {
	const room = 4 // bytes read per byte shown, because much of a text may be white space
	cut := len(text) > room*n
	if cut {
		text = strings.ToValidUTF8(text[:room*n], "")
	}
	line := strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c < ' ' || c == 0x7f }), " ")
	if cut && len(line) <= n {
		return line + "…"
	}
	return Clip(line, n)
}
