package web

import (
	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// artifacts is a page of a thread's artifacts, newest first. Older is the token of the next page; empty on the last one.
type artifacts struct {
	Thread string
	List   []*arbev1.Artifact
	Older  string
}

// artifactName returns an artifact's title.
func artifactName(a *arbev1.Artifact) string {
	for _, name := range []string{a.Label, a.ExternalId} {
		if name != "" {
			return name
		}
	}
	return a.Kind + " " + a.Id
}

// downloadWords says which part of a command's output can be downloaded.
func downloadWords(r *entry.CommandResult) string {
	if r.ArtifactPart {
		return "Download the first " + bytesText(r.ArtifactBytes)
	}
	return "Download all " + bytesText(r.ArtifactBytes)
}
