package entry_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"/shrug": "shrug", "/runn make": "runn", "/de-ploy\nnow": "de-ploy", "/tmp is full": "tmp"} {
		if got, is := entry.UnknownCommand(text); !is || got != want {
			t.Errorf("%q has the unknown command %q (%t), want %q", text, got, is, want)
		}
	}
	for _, text := range []string{"", "/", "/ x", " /shrug", "//shrug", "/run", "/run make", "/etc/hosts is wrong", "/2", "/Run x", "say /shrug", "/ünder"} {
		if got, is := entry.UnknownCommand(text); is {
			t.Errorf("%q has the unknown command %q, want something to say", text, got)
		}
	}
	for text, want := range map[string]string{
		"//shrug": "/shrug", "//run make": "/run make", "//etc/hosts": "//etc/hosts", "// a comment": "// a comment", "//": "//", "/run": "/run", "x": "x", "/!ls": "/!ls",
	} {
		if got := entry.Unescaped(text); got != want {
			t.Errorf("%q says %q, want %q", text, got, want)
		}
	}
}
