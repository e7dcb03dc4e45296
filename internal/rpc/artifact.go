package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/retention"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type artifactService struct{ Services }

func (s *artifactService) CreateArtifact(ctx context.Context, req *arbev1.CreateArtifactRequest) (*arbev1.CreateArtifactResponse, error) {
	scope, err := s.mayCreateArtifact(ctx, req)
	if err != nil {
		return nil, err
	}
	var content io.Reader
	if req.Content != nil {
		content = bytes.NewReader(req.Content)
	}
	made, err := s.Artifacts.Create(ctx, scope, artifactDraft(req), content)
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateArtifactResponse{Artifact: wireArtifact(made)}, nil
}

// mayCreateArtifact authorizes the caller to create an artifact. Anybody who may append to a thread may create an artifact
// in it. An artifact of the house requires permission to write in the house.
func (s Services) mayCreateArtifact(ctx context.Context, req *arbev1.CreateArtifactRequest) (db.Scope, error) {
	if thread, ok := req.Scope.(*arbev1.CreateArtifactRequest_ThreadId); ok {
		return s.Auth.Authorize(ctx, auth.Say, auth.Thread(thread.ThreadId))
	}
	return s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
}

func (s *artifactService) GetArtifact(ctx context.Context, req *arbev1.GetArtifactRequest) (*arbev1.GetArtifactResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Artifact(req.GetId()))
	if err != nil {
		return nil, s.whyGone(ctx, retention.Artifact, req.GetId(), err)
	}
	got, err := s.Artifacts.Get(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetArtifactResponse{Artifact: wireArtifact(got)}, nil
}

func (s *artifactService) ListArtifacts(ctx context.Context, req *arbev1.ListArtifactsRequest) (*arbev1.ListArtifactsResponse, error) {
	target := auth.House(req.GetHouseId())
	if thread, ok := req.Scope.(*arbev1.ListArtifactsRequest_ThreadId); ok {
		target = auth.Thread(thread.ThreadId)
	}
	scope, err := s.Auth.Authorize(ctx, auth.Read, target)
	if err != nil {
		return nil, err
	}
	from, err := artifactList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	before := db.Newest
	if from.ID != "" {
		before = from.cursor()
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Artifacts.List(ctx, scope, req.GetThreadId(), req.GetMatch(), before, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(artifactList, rows, size, func(a artifact.Artifact) bookmark { return bookmark{Time: a.CreatedAt, ID: a.ID} })
	return &arbev1.ListArtifactsResponse{Artifacts: each(rows, wireArtifact), NextPageToken: next}, nil
}

func (s *artifactService) DeleteArtifact(ctx context.Context, req *arbev1.DeleteArtifactRequest) (*arbev1.DeleteArtifactResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Artifact(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound { // already deleted, or in a house that the caller must not learn of
		return &arbev1.DeleteArtifactResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	return &arbev1.DeleteArtifactResponse{}, s.Artifacts.Delete(ctx, scope, req.GetId())
}

// artifactDraft returns the domain value of a request, without its content.
func artifactDraft(req *arbev1.CreateArtifactRequest) artifact.Draft {
	return artifact.Draft{
		ID: req.GetId(), Kind: req.GetKind(), Label: req.GetLabel(), ExternalID: req.GetExternalId(), MIMEType: req.GetMimeType(), ByteRef: req.GetByteRef(),
		Thread: req.GetThreadId(), Run: req.GetRunId(), Resource: req.GetResourceId(), Metadata: json.RawMessage(req.GetMetadata()),
	}
}

func wireArtifact(a artifact.Artifact) *arbev1.Artifact {
	return &arbev1.Artifact{
		Id: a.ID, HouseId: a.House, Kind: a.Kind, Label: shown(a.Label), ExternalId: a.ExternalID, MimeType: a.MIMEType, ByteRef: a.ByteRef, HasBytes: a.HasBytes,
		Size: a.Size, AuthorAgentId: a.Author, ThreadId: a.Thread, RunId: a.Run, ResourceId: a.Resource, Metadata: string(a.Metadata), CreatedAt: timestamp(a.CreatedAt),
	}
}
