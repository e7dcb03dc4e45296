package web

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

// outcome is how a command ended, as [entry.CommandResult.Outcome] says it, with the name of the person or bot who stopped
// it: "stopped by Ada with SIGINT · exit 130 · 1.2s". The page must have met them ([transcript.meet]).
func (t *transcript) outcome(r entry.CommandResult) string {
	words := r.Outcome()
	if rest, cancelled := strings.CutPrefix(words, "cancelled"); cancelled && r.CancelledBy != "" {
		return "stopped by " + t.people.byID(r.CancelledBy).Name + rest
	}
	return words
}

// outcomeClass is the status class of how a command ended.
func outcomeClass(r *entry.CommandResult) string {
	switch {
	case r.Cancelled:
		return "cancelled"
	case r.Failed():
		return "failed"
	}
	return "completed"
}

func commandClass(c commandView) string {
	switch {
	case c.Result != nil:
		return outcomeClass(c.Result)
	case c.Cut != nil:
		return "idle"
	}
	return "running"
}

// resultEnd is the end of what a command printed. It is longer when the command failed, because readers then want to
// see why.
func resultEnd(r *entry.CommandResult) markup.Output {
	lines := markup.FoldedLines
	if outcomeClass(r) == "failed" {
		lines = markup.FailedLines
	}
	if r.Truncated {
		return markup.OutputEnd(r.OutputTail, lines)
	}
	return markup.OutputEnd(r.Output, lines)
}
