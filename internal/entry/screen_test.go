package entry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestWhatATerminalShowsIsText(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"":                                             "",
		"$ echo hi\r\nhi\r\n":                          "$ echo hi\nhi",
		"\x1b[1;31mred\x1b[0m plain\r\n":               "red plain",
		"10%\r 50%\r100%\r\ndone\r\n":                  "100%\ndone",
		"gti\b\b\bgit st\x1b[Ktatus\r\n":               "git sttatus",
		"long line\rshort\x1b[K\r\n":                   "short",
		"\x1b]0;a title\agone":                         "gone",
		"\x1b]0;a title\x1b\\gone":                     "gone",
		"\x1bP+q544e\x1b\\a\x1b(Bb\x1b=c":              "abc",
		"before\r\n\x1b[?1049h~\r\n~\x1b[2J":           "before",
		"before\r\n\x1b[?1049hvim\x1b[?1049lafter\r\n": "before\nafter",
		"hällo\b\by":                                   "hälyo",
		"cut \x1b[3":                                   "cut",
		"cut \x1b":                                     "cut",
		"\x1b]never":                                   "",
	} {
		if got := entry.TerminalText(output); got != want {
			t.Errorf("%q shows %q, want %q", output, got, want)
		}
	}
	begin := time.Now()
	entry.TerminalText(strings.Repeat("\x1b]", 1<<20) + strings.Repeat("\x1b[", 1<<20) + strings.Repeat("x\b", 1<<20))
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("6 MB take %v", took)
	}
}
