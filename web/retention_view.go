package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// retentionView is the page of a house's retention.
type retentionView struct {
	Layout layout
	// These are the fields of the form: days and MiB, or empty for what is kept.
	Threads, Artifacts, ThreadsMB, ArtifactsMB string
	// Logs is the size of the house's logs, in words.
	Logs string
	// ETag is the version of the house that the form changes.
	ETag string
	// Old is what the form would delete at once; nil if nobody has asked.
	Old      *arbev1.RetentionPreview
	Problems problems
}

// logsWords says how large the logs of a house are.
func logsWords(logs *arbev1.HouseLogs) string {
	one := " entries"
	if logs.GetEntries() == 1 {
		one = " entry"
	}
	return "Its logs have " + grouped(int(logs.GetEntries())) + one + " and " + bytesText(logs.GetBytes()) + " of " + bytesText(logs.GetBytesLimit()) + "."
}

func keepField(n int32) string {
	if n == 0 {
		return ""
	}
	return decimal(int(n))
}

// oldWords says what would be deleted.
func oldWords(old *arbev1.RetentionPreview) string {
	count := func(n int64, one string) string {
		if n == 1 {
			return "1 " + one
		}
		return grouped(int(n)) + " " + one + "s"
	}
	artifacts := count(old.Artifacts, "artifact") + " (" + bytesText(old.ArtifactBytes) + ")"
	switch {
	case old.Artifacts == 0:
		return count(old.Threads, "thread")
	case old.Threads == 0:
		return artifacts
	}
	return count(old.Threads, "thread") + " and " + artifacts
}
