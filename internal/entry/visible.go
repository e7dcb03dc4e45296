package entry

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns a text as valid UTF-8 without invisible characters: controls (including line breaks and tabs), line and
// paragraph separators, direction marks, tags, fillers. It replaces each by the result of mark. A character that joins
// letters or emoji, or chooses their shape, stays where it does that, and is removed elsewhere.
func Visible(text string, mark func(c rune) string) string {
	if isPrintableASCII(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	before := rune(0)        // the last character that was written
	for i, c := range text { // invalid bytes are U+FFFD
		switch {
		case isJoiner(c):
			emoji := before == '\ufe0f' && c == '\u200d' // as in a heart on fire
			keycap := c == '\ufe0f' && strings.ContainsRune("0123456789#*", before) && strings.HasPrefix(text[i:], "\ufe0f\u20e3")
			if before < utf8.RuneSelf && !keycap || !emoji && !unicode.IsGraphic(before) || !emoji && isJoiner(before) {
				continue
			}
		case isInvisible(c):
			if shown := mark(c); shown != "" {
				b.WriteString(shown)
				before, _ = utf8.DecodeLastRuneInString(shown)
			}
			continue
		}
		b.WriteRune(c)
		before = c
	}
	return b.String()
}

// isPrintableASCII reports whether a text has only printable ASCII characters. It is a fast path for most texts.
func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// isJoiner reports whether a character has a meaning only after another one: it joins letters or emoji, or chooses their
// shape.
func isJoiner(c rune) bool {
	return c == '\u200c' || c == '\u200d' || c >= '\ufe00' && c <= '\ufe0f'
}

// isInvisible reports whether a character shows nothing, or changes how others are shown.
func isInvisible(c rune) bool {
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
