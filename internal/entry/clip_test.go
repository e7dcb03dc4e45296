package entry_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"abcd", 0, "…"},
		{"aé", 3, "aé"},
		{"aéb", 2, "a…"},
		{"a😀b", 4, "a…"},
		{"a😀b", 5, "a😀…"},
	} {
		if got := entry.Clip(c.text, c.n); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{" a\r\n\tb  c\x00\x7fd ", 20, "a b c d"},
		{"one two three", 7, "one two…"},
		{"zwölf", 3, "zw…"},
		{strings.Repeat(" ", 1000) + "late", 10, "…"},
	} {
		if got := entry.OneLine(c.text, c.n); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.n, got, c.want)
		}
	}
	if got := entry.OneLine(strings.Repeat("é\n", 1<<20), 101); !utf8.ValidString(got) || len(got) > 101+len("…") {
		t.Errorf("a long text becomes %q", got)
	}
}
