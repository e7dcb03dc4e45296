package web

import (
	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// artifacts are artifacts of a thread, newest first. Older is the page of those after them; it is empty if there are none.
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
