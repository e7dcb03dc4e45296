package web

import (
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func pinWord(t *arbev1.Thread) string {
	if t.PinnedAt != nil {
		return "Unpin"
	}
	return "Pin"
}

func joinTags(tags []string) string { return strings.Join(tags, ", ") }

// boxWord says where a command of this thread would run.
func boxWord(b box) string {
	switch {
	case b.Sandbox != nil && b.Sandbox.Status == "live":
		return "box " + b.Sandbox.Id
	case b.Environment != nil:
		return "a new box made from " + b.Environment.Name
	}
	return "no box: set an environment first"
}

func boxStatusWord(s *arbev1.Sandbox) string {
	switch s.Status {
	case "live":
		return "Live"
	case "pending":
		return "Starting"
	case "dead":
		return "Gone; the next command makes a new one"
	}
	return s.Status
}

func olderPath(thread string, before int64) string {
	return threadPath(thread) + "/entries?before=" + decimal(before)
}

func newerPath(thread string, after int64) string {
	return threadPath(thread) + "/entries?after=" + decimal(after)
}

func tailPath(thread string, after int64) string {
	return threadPath(thread) + "/tail?after=" + decimal(after)
}

func wholePath(thread string, seq int64) string {
	return threadPath(thread) + "/entries/" + decimal(seq)
}
