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

func TestTheNameOfAThreadIsWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"@arbe why is it red?": "why is it red?", "@arbe, @pi: look": "look", "!make test": "make test", "/run make test": "make test",
		"/delegate @pi fix it": "fix it", "@arbe /think high why?": "why?", "hello @arbe": "hello @arbe", "@arbe": "@arbe",
	} {
		if got := nameFrom(text); got != want {
			t.Errorf("a thread that begins with %q is called %q, want %q", text, got, want)
		}
	}
}
