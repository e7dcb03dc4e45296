package web

import "github.com/arbe-dev/arbe/internal/entry"

// outcomeClass is the status class of how a command ended.
func outcomeClass(r *entry.CommandResult) string {
	switch {
	case r.Cancelled:
		return "cancelled"
	case r.ExitCode != 0 || r.Error != "" || r.TimedOut || r.OutOfMemory:
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

// resultEnd is the end of what a command printed, longer when it failed.
func resultEnd(r *entry.CommandResult) screenText {
	lines := foldedLines
	if outcomeClass(r) == "failed" {
		lines = failedLines
	}
	if r.Truncated {
		return screenEnd(r.OutputTail, lines)
	}
	return screenEnd(r.Output, lines)
}
