package entry_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestTheNameOfAThreadIsWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"@arbe why is it red?": "why is it red?", "@arbe, @pi: look": "look", "!make test": "make test", "/run make test": "make test",
		"/delegate @pi fix it": "fix it", "@arbe /think high why?": "why?", "hello @arbe": "hello @arbe", "@arbe": "@arbe",
	} {
		if got := entry.Title(text); got != want {
			t.Errorf("a thread that begins with %q is called %q, want %q", text, got, want)
		}
	}
}
