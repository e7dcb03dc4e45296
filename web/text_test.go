package web

import "testing"

func TestAListShowsPlainText(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"**Done.** See `main.go` and [the log](https://x.test/a)": "Done. See main.go and the log",
		"## Result":     "Result",
		"- one - two":   "one - two",
		"2 * 3 = 6":     "2 * 3 = 6",
		"$ echo `date`": "$ echo `date`",
		"snake_case":    "snake_case",
		"**":            "**",
	} {
		if got := plainText(line); got != want {
			t.Errorf("%q is shown as %q, want %q", line, got, want)
		}
	}
}
