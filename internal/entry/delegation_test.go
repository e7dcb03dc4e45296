package entry_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestParseDelegation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		agent, task string
		is          bool
	}{
		"/delegate fix it":               {"", "fix it", true},
		"/delegate @codex  fix it\nnow ": {"codex", "fix it\nnow", true},
		"/delegate\n@pi\nfix it":         {"pi", "fix it", true},
		"/delegate @pi":                  {"pi", "", true},
		"/delegate":                      {"", "", true},
		"/delegated fix it":              {},
		" /delegate fix it":              {},
		"//delegate fix it":              {},
		"fix it, /delegate":              {},
	} {
		agent, task, is := entry.ParseDelegation(text)
		if agent != want.agent || task != want.task || is != want.is {
			t.Errorf("%q: @%s %q, %t", text, agent, task, is)
		}
	}
	if err := entry.CheckComposed("/delegate @pi "); err == nil {
		t.Error("no task is delegated")
	}
	if got := entry.Unescaped("//delegate it"); got != "/delegate it" {
		t.Errorf("escaped, it says %q", got)
	}
}
