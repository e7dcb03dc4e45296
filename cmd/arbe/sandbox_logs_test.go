package main

import (
	"strings"
	"testing"
	"time"
)

// The setup script of a hostile repository may print anything, and its folders may have any name.
func TestASandboxLogDoesNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	saved := time.Now()
	v := sandboxLogView{
		Steps:   []sandboxStepView{{Name: "set up", Output: "one\n\x1b]0;evil\x07\x1b[2Jtwo\u202e"}},
		SavedAt: &saved, Saved: []savedPartView{{Folder: "a\x1b[2J\nb", Missing: "c\x9bd"}},
	}
	text := v.text(&app{})
	if strings.ContainsAny(text, "\x1b\x07\u202e\u009b") || !strings.Contains(text, "\n    one\n    ") || strings.Contains(text, "\nb") {
		t.Errorf("it is %q", text)
	}
}
