package main

import (
	"os"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestADeviceIsNotATerminal(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/dev/null", "/dev/full", "/dev/zero"} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skipf("this machine has no %s", path)
		}
		defer f.Close()
		if isTerminal(f) {
			t.Errorf("%s counts as a terminal", path)
		}
	}
}

// Names in rows that are older than the rule for names may have any character.
func TestTextOfOthersCannotChangeWhatATerminalShows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tb\r\nc": "a\tb\nc", "\x1b[31mred\x1b[0m": "red", "a\x1b]0;x\ab": "a\uFFFD]0;x\uFFFDb", "a\u202eb": "a\uFFFDb", "a\u2066b\u2069": "a\uFFFDb\uFFFD",
		"a\u200bb": "a\uFFFDb", "a\u2028b": "a\uFFFDb", "می\u200cخواهم": "می\u200cخواهم", "👩\u200d🚀": "👩\u200d🚀", "a\u200db": "ab",
		"1\ufe0f\u20e3 and #\ufe0f\u20e3": "1\ufe0f\u20e3 and #\ufe0f\u20e3", "©\ufe0f": "©\ufe0f", "1\ufe0f2": "12", "a\ufe0f\u20e3": "a\u20e3",
	} {
		if got := entry.Printable(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
