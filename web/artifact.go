package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
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

// document shows an artifact that is Markdown.
func (a *app) document(w http.ResponseWriter, r *http.Request) error {
	res, err := a.services.artifacts.GetArtifact(r.Context(), &arbev1.GetArtifactRequest{Id: r.PathValue("artifact")})
	if err != nil {
		return err
	}
	v := documentView{Artifact: res.Artifact}
	if !isDocument(v.Artifact) {
		return fault.New(fault.NotFound, "this artifact is no document to show", "download it instead")
	}
	text, err := a.services.bytesOf(r.Context(), v.Artifact.Id, maxDocument)
	if err != nil {
		return err
	}
	v.HTML = markup.Markdown(strings.ToValidUTF8(string(text), "\uFFFD"), markup.NewEffort())
	if v.Layout, err = a.layoutOf(r, v.Artifact.HouseId, v.Artifact.ThreadId); err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, documentPage(v))
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
