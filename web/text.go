package web

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
)

// sentence writes a fault's words as a sentence: a capital at its start, a full stop at its end.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	c, n := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(c)) + s[n:]
	if last := s[len(s)-1]; last != '.' && last != '!' && last != '?' {
		s += "."
	}
	return s
}

func decimal[N ~int | ~int64 | ~uint32](n N) string { return strconv.FormatInt(int64(n), 10) }

func pressed(on bool) string { return strconv.FormatBool(on) }

// sending is what became of something in the outbox: refused with a failure, or taken at a position; the
// zero sending is still on its way.
type sending struct {
	Seq     int64
	Failure *fault.Error
}
