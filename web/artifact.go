package web

import (
	"context"
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxArtifacts limits the artifacts that a thread's page lists, and pageOfArtifacts those on a page of artifacts.
const maxArtifacts, pageOfArtifacts = 20, 200

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
