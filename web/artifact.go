package web

import (
	"context"
	"net/http"
	"net/url"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxArtifacts is how many artifacts of a thread its page lists, and pageOfArtifacts how many a page of artifacts does.
const maxArtifacts, pageOfArtifacts = 20, 200

// artifacts are artifacts of a thread, newest first. Older is the page of those after them; it is empty if there are none.
type artifacts struct {
	Thread string
	List   []*arbev1.Artifact
	Older  string
}

// artifactsOf reads a page of a thread's artifacts; the first one is "".
func (a *app) artifactsOf(ctx context.Context, thread, page string, size int32) (artifacts, error) {
	res, err := a.services.artifacts.ListArtifacts(ctx, &arbev1.ListArtifactsRequest{
		Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: thread}, PageSize: size, PageToken: page,
	})
	return artifacts{thread, res.GetArtifacts(), res.GetNextPageToken()}, err
}

// artifacts shows all artifacts of a thread, page after page.
func (a *app) artifacts(w http.ResponseWriter, r *http.Request) error {
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	list, err := a.artifactsOf(r.Context(), res.Thread.Id, r.URL.Query().Get("page"), pageOfArtifacts)
	if err != nil {
		return err
	}
	f, err := a.layoutOf(r, res.Thread.HouseId, res.Thread.Id)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, artifactsPage(f, res.Thread, list))
}

// artifactPath is where a browser downloads an artifact's bytes. Another handler serves it: it accepts the same
// session, and makes browsers save the bytes, because untrusted bytes must not run as a page of this app.
func artifactPath(id string) string { return "/api/artifact/" + url.PathEscape(id) }

// imagePath is where a browser gets an artifact that is an image, to be shown. It is no image by any other path.
func imagePath(id string) string { return artifactPath(id) + "/image" }

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
