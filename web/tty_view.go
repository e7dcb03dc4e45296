package web

import (
	"fmt"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// ttyView is the page of a thread's terminals.
type ttyView struct {
	Layout    layout
	Thread    *arbev1.Thread
	Workplace workplace
	// Command is the id of the command whose terminal is shown; empty if none is.
	Command string
	// Ended says how that command ended; empty if it runs.
	Ended string
	// Shells are the terminals that run.
	Shells []shellTab
}

// shellTab names a terminal.
type shellTab struct{ ID, Name string }

// shellLine is the command of a terminal that a page opens.
const shellLine = "command -v bash >/dev/null && exec bash; exec sh"

// shellName returns the name of the n-th terminal of a thread.
func shellName(e *arbev1.Entry, n int) string {
	c, _ := entry.As[entry.Command](transcript.Entry(e))
	if c.Command == shellLine || c.Command == "" {
		return fmt.Sprintf("Shell %d", n)
	}
	return clip(c.Command, maxWord)
}

// shellEnd says how the command of a terminal ended.
func shellEnd(r entry.CommandResult) string {
	if r.Error != "" {
		return "The shell " + r.Outcome() + ": " + sentence(clip(r.Error, 500))
	}
	return "The shell ended (" + r.Outcome() + ")."
}

// withoutTerminals says why a thread's sandbox has no terminals. It is empty if the sandbox has them, or if that is not known
// because there is none yet.
func withoutTerminals(b workplace) string {
	if b.Sandbox == nil || b.Sandbox.Status == arbev1.SandboxStatus_SANDBOX_STATUS_DEAD || !b.Sandbox.WithoutTerminals {
		return ""
	}
	return "Sandboxes of the driver " + b.Sandbox.Provider + " have no terminals yet."
}

// ttyButtons are the keys that the keyboards of phones lack.
var ttyButtons = []struct{ key, name, label string }{
	{"Escape", "Esc", "Esc"}, {"Tab", "Tab", "Tab"}, {"c", "^C", "Control C"}, {"d", "^D", "Control D"},
	{"ArrowUp", "↑", "Up"}, {"ArrowDown", "↓", "Down"}, {"ArrowLeft", "←", "Left"}, {"ArrowRight", "→", "Right"},
}
