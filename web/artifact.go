package web

import (
	"context"
	"net/url"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxArtifacts is how many artifacts of a thread its page lists.
const maxArtifacts = 20

// artifacts are the latest artifacts of a thread. More reports that there are older ones.
type artifacts struct {
	List []*arbev1.Artifact
	More bool
}

func (a *app) artifactsOf(ctx context.Context, thread string) (artifacts, error) {
	res, err := a.services.artifacts.ListArtifacts(ctx, &arbev1.ListArtifactsRequest{
		Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: thread}, PageSize: maxArtifacts,
	})
	return artifacts{res.GetArtifacts(), res.GetNextPageToken() != ""}, err
}

// artifactPath is where a browser downloads an artifact's bytes. Another handler serves it: it accepts the same
// session, and makes browsers save the bytes, because untrusted bytes must not run as a page of this app.
func artifactPath(id string) string { return "/api/artifact/" + url.PathEscape(id) }

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
