package web

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/web/transcript"
)

// maxNote limits the text of a note, and maxWord a name in it, in bytes.
const maxNote, maxWord = transcript.MaxNote, transcript.MaxWord

// clip is a short name for [entry.Clip], which pages use for every text that somebody wrote.
func clip(text string, n int) string { return entry.Clip(text, n) }

// sentence turns a fault's message into a sentence: it begins with a capital and ends with a full stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	c, n := utf8.DecodeRuneInString(s)
	return stopped(string(unicode.ToUpper(c)) + s[n:])
}

// stopped ends a text like a sentence. It keeps the beginning, which may be a name.
func stopped(s string) string {
	if s == "" {
		return ""
	}
	if last := s[len(s)-1]; last != '.' && last != '!' && last != '?' {
		s += "."
	}
	return s
}

func decimal[N ~int | ~int64 | ~uint32](n N) string { return strconv.FormatInt(int64(n), 10) }

func pressed(on bool) string { return strconv.FormatBool(on) }

// bytesText formats a size: "3.0 MiB".
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// grouped formats a number with commas: "1,204".
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// shortDuration formats d as people write it: "10m", "1h30m".
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// newID returns the id of something that a form creates. The form contains it, so that sending the form twice creates only
// one thing.
func newID() string { return strings.ToLower(rand.Text()) }

var isID = lazyregexp.New(`^[a-z0-9]{8,64}$`).MatchString

// marks match the Markdown that is removed from a line: the marks of code, emphasis, headings, quotes, lists and links.
var marks = lazyregexp.New("`+|\\*\\*+|__+|~~|^\\s*(?:#{1,6}|>|[-*+]|\\d{1,9}[.)])\\s+")

var linked = lazyregexp.New(`!?\[([^\]]*)\]\([^)]*\)`)

// plainText returns the beginning of a message for a list, without the marks of Markdown. It leaves a command unchanged.
func plainText(line string) string {
	if strings.HasPrefix(line, "$ ") {
		return line
	}
	if plain := strings.TrimSpace(marks.ReplaceAllString(linked.ReplaceAllString(line, "$1"), "")); plain != "" {
		return plain
	}
	return line
}
