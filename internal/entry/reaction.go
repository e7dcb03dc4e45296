package entry

import (
	"strings"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
)

// MaxEmoji is the maximum length of an emoji in a reaction, in bytes.
const MaxEmoji = 32

// ChatReacted records that a member added or removed a reaction. Its author is that member. It starts no bot, does not count
// as unread, and does not move the thread up in lists.
type ChatReacted struct {
	// EntryID is the id of a [Chat] or a [Command], and Seq its position.
	EntryID string `json:"entry_id"`
	Seq     int64  `json:"seq"`
	// Emoji is one emoji as [Emoji] writes it.
	Emoji string `json:"emoji"`
	// Removed reports that the reaction was removed.
	Removed bool `json:"removed,omitempty"`
}

func (ChatReacted) Type() string { return "signal.chat.reacted" }

func (r ChatReacted) parts(Entry) []Part { return []Part{{Work{ChatWork, r.EntryID}, Notes}} }

func (r ChatReacted) Validate() error {
	if e, ok := Emoji(r.Emoji); !ok || e != r.Emoji {
		return noEmoji()
	}
	return validChat(r.EntryID, r.Seq)
}

func (r ChatReacted) Plain() string {
	if r.Removed {
		return "took back " + r.Emoji + " on " + r.EntryID
	}
	return "reacted with " + r.Emoji + " to " + r.EntryID
}

func noEmoji() error {
	return fault.New(fault.Invalid, "emoji: it is not one emoji", "send a single emoji, such as 👍")
}

// The characters of emoji sequences, besides the pictures; see UTS #51.
const (
	zwj, emojiStyle, keycap = '\u200d', '\ufe0f', '\u20e3'
	tagFirst, tagLast       = '\U000e0020', '\U000e007e'
	tagEnd                  = '\U000e007f'
)

// Emoji returns the stored form of a text that is a single emoji of at most [MaxEmoji] bytes: a picture with its presentation
// and skin tone, a sequence of pictures that are joined into one, a flag, or a keycap. Pictures with a text presentation,
// such as a heart, always get the emoji presentation, so that the same picture is the same reaction.
func Emoji(text string) (stored string, ok bool) {
	if text == "" || len(text) > MaxEmoji || !utf8.ValidString(text) {
		return "", false
	}
	rest := []rune(text)
	var b strings.Builder
	for {
		n := emojiPart(rest)
		if n == 0 {
			return "", false
		}
		part := rest[:n]
		b.WriteString(string(part))
		if n == 1 && part[0] < 0x1f000 {
			b.WriteRune(emojiStyle)
		}
		if rest = rest[n:]; len(rest) == 0 {
			return b.String(), b.Len() <= MaxEmoji
		}
		if rest[0] != zwj || !isPicture(part[0]) {
			return "", false
		}
		b.WriteRune(zwj)
		rest = rest[1:]
	}
}

// emojiPart returns the length, in runes, of the emoji without joiners at the beginning of text; 0 if there is none.
func emojiPart(text []rune) int {
	at := func(i int) rune { return runeAt(text, i) }
	switch first := at(0); {
	case isRegion(first):
		if isRegion(at(1)) {
			return 2
		}
		return 0
	case first != 0 && strings.ContainsRune("0123456789#*", first):
		if at(1) == emojiStyle && at(2) == keycap {
			return 3
		}
		return 0
	case !isPicture(first):
		return 0
	}
	n := 1
	if at(1) == emojiStyle || isSkin(at(1)) {
		n = 2
	}
	return withTags(text, n)
}

// withTags returns the length of an emoji with the tags that follow its first n runes; 0 if they do not end.
func withTags(text []rune, n int) int {
	isTag := func(i int) bool { return runeAt(text, i) >= tagFirst && runeAt(text, i) <= tagLast }
	if !isTag(n) {
		return n
	}
	for isTag(n) {
		n++
	}
	if runeAt(text, n) != tagEnd {
		return 0
	}
	return n + 1
}

// runeAt returns a rune of text; 0 after its end.
func runeAt(text []rune, i int) rune {
	if i < len(text) {
		return text[i]
	}
	return 0
}

func isRegion(c rune) bool { return c >= 0x1f1e6 && c <= 0x1f1ff }

func isSkin(c rune) bool { return c >= 0x1f3fb && c <= 0x1f3ff }

// isPicture reports whether a character is a picture, or has an emoji presentation.
func isPicture(c rune) bool {
	for _, r := range pictures {
		if c >= r[0] && c <= r[1] {
			return !isRegion(c)
		}
	}
	return false
}

// pictures covers Unicode's Extended_Pictographic characters. The ranges are slightly wider.
var pictures = [][2]rune{
	{0x203c, 0x203c}, {0x2049, 0x2049}, {0x2139, 0x2139}, {0x2194, 0x2199}, {0x21a9, 0x21aa}, {0x231a, 0x231b}, {0x2328, 0x2328},
	{0x23cf, 0x23cf}, {0x23e9, 0x23f3}, {0x23f8, 0x23fa}, {0x24c2, 0x24c2}, {0x25aa, 0x25ab}, {0x25b6, 0x25b6}, {0x25c0, 0x25c0}, {0x25fb, 0x25fe},
	{0x2600, 0x27bf}, {0x2934, 0x2935}, {0x2b05, 0x2b07}, {0x2b1b, 0x2b1c}, {0x2b50, 0x2b50}, {0x2b55, 0x2b55}, {0x3030, 0x3030},
	{0x303d, 0x303d}, {0x3297, 0x3297}, {0x3299, 0x3299}, {0x1f000, 0x1faff},
}
