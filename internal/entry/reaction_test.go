package entry_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestEmoji(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"👍": "👍", "👍🏽": "👍🏽", "❤": "❤️", "❤️": "❤️", "✅": "✅\ufe0f", "👨‍👩‍👧‍👦": "👨‍👩‍👧‍👦", "❤️‍🔥": "❤️‍🔥", "🇩🇪": "🇩🇪", "1️⃣": "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿": "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏳️‍🌈": "🏳️‍🌈",
	} {
		if got, ok := entry.Emoji(text); !ok || got != want {
			t.Errorf("%q is %q, %v", text, got, ok)
		}
	}
	for what, text := range map[string]string{
		"nothing": "", "a letter": "a", "a word": "yes", "a digit": "1", "two": "👍👍", "one with a word": "👍 ok", "a joiner alone": "\u200d", "a joiner at the end": "👍\u200d",
		"a style alone": "\ufe0f", "two styles": "❤\ufe0f\ufe0f", "half a flag": "🇩", "markup": "<b>", "a tag without an end": "🏴\U000e0067", "a hidden text": "👍\U000e0041\U000e007f\U000e0041\U000e007f",
		"a direction": "👍\u202e", "a combining mark": "👍\u0301", "invalid text": "\xff", "a chain that is too long": strings.Repeat("👍\u200d", 8) + "👍",
	} {
		if got, ok := entry.Emoji(text); ok {
			t.Errorf("%s is the emoji %q", what, got)
		}
	}
}
