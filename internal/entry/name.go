package entry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Name cleans and validates a name that a person chose (of a thread, a house, a tag). It trims white space, and removes
// joiners of letters or emoji where they join nothing. The name must be one line of valid UTF-8 of at most limit characters,
// none of them invisible (see [Visible]), because lists and terminals print it. It may be empty, and it may look like
// markup: code that shows it must escape it. The error is a [fault.Invalid] that names the field.
func Name(field, name string, limit int) (string, error) {
	name = strings.TrimSpace(name)
	hidden := rune(-1)
	visible := Visible(name, func(c rune) string {
		if hidden < 0 {
			hidden = c
		}
		return ""
	})
	switch {
	case !utf8.ValidString(name):
		return "", fault.New(fault.Invalid, field+": it is not valid UTF-8", "send it as UTF-8 text")
	case unicode.IsControl(hidden), unicode.In(hidden, unicode.Zl, unicode.Zp):
		return "", fault.New(fault.Invalid, field+": it has a line break or another control character", "write it on one line")
	case hidden >= 0:
		return "", fault.Newf(fault.Invalid, "leave it out", "%s: it has the invisible character U+%04X", field, hidden)
	}
	// A joiner at the end joins nothing, and more white space may precede it.
	name = strings.TrimRightFunc(visible, func(c rune) bool { return c == '\u200c' || c == '\u200d' || unicode.IsSpace(c) })
	name = strings.TrimSpace(name)
	if utf8.RuneCountInString(name) > limit {
		return "", fault.Newf(fault.Invalid, "shorten it", "%s: at most %d characters", field, limit)
	}
	return name, nil
}

// RequiredName is [Name] for a name that must not be empty.
func RequiredName(field, name string, limit int) (string, error) {
	name, err := Name(field, name, limit)
	if err == nil && name == "" {
		err = fault.New(fault.Invalid, field+": it is empty", "give it a name")
	}
	return name, err
}
