package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// retentionView is the page about what a house does not keep.
type retentionView struct {
	Layout layout
	// Threads and Artifacts are the fields of the form: days, or empty for what is kept.
	Threads, Artifacts string
	// Old is what the form would delete at once; nil if nobody has asked.
	Old      *arbev1.RetentionPreview
	Problems problems
}

func dayField(days int32) string {
	if days == 0 {
		return ""
	}
	return decimal(int(days))
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
