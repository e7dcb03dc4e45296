package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// place is a thread or a house whose artifacts are listed, or in which they are stored.
type place struct{ thread, house string }

func (a *app) placeFlags(cmd *cobra.Command, p *place) {
	cmd.Flags().StringVarP(&p.thread, "thread", "t", "", "the thread (default $ARBE_THREAD, or none)")
	a.completes(cmd, "thread", a.threads)
	a.houseFlag(cmd, &p.house)
}

// find completes a place: the named thread, else the named house, else $ARBE_THREAD, else the house to work in. It sets only
// one of the two fields.
func (p *place) find(ctx context.Context, a *app, c *arbe.Client) (err error) {
	switch {
	case p.house != "" && p.thread != "":
		return fault.New(fault.Invalid, "--thread and --house are both given", "give only one of them: the thread already names its house")
	case p.house == "":
		p.thread = first(p.thread, a.getenv("ARBE_THREAD"))
	}
	if p.thread == "" {
		p.house, err = a.inHouse(ctx, c, p.house)
	} else {
		p.thread, err = a.find(ctx, c, threadKind, "", p.thread)
	}
	return err
}

// artifacts proposes the newest artifacts of the thread or house.
func (a *app) artifacts(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	var p place
	if err := p.find(ctx, a, c); err != nil {
		return nil, err
	}
	req := p.list()
	req.PageSize = 200
	page, err := c.Artifacts.ListArtifacts(ctx, req)
	for _, f := range page.GetArtifacts() {
		found = append(found, thing{f.GetId(), f.GetLabel()})
	}
	return found, err
}

// list returns a request for the artifacts of a place.
func (p place) list() *arbev1.ListArtifactsRequest {
	if p.thread != "" {
		return &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: p.thread}}
	}
	return &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: p.house}}
}

type artifactView struct {
	ID         string    `json:"id"`
	HouseID    string    `json:"house_id"`
	Kind       string    `json:"kind"`
	Label      string    `json:"label,omitempty"`
	ExternalID string    `json:"external_id,omitempty"`
	MIMEType   string    `json:"mime_type,omitempty"`
	ByteRef    string    `json:"byte_ref,omitempty"`
	HasBytes   bool      `json:"has_bytes"`
	Size       int64     `json:"size"` // always present; 0 means empty or stored elsewhere
	AuthorID   string    `json:"author_agent_id,omitempty"`
	ThreadID   string    `json:"thread_id,omitempty"`
	RunID      string    `json:"run_id,omitempty"`
	ResourceID string    `json:"resource_id,omitempty"`
	Metadata   jsonText  `json:"metadata"`
	CreatedAt  time.Time `json:"created_at"`
}

// jsonText is JSON that is passed through unchanged.
type jsonText string

// MarshalJSON returns the text itself.
func (t jsonText) MarshalJSON() ([]byte, error) { return []byte(first(string(t), "{}")), nil }

func viewArtifact(f *arbev1.Artifact) artifactView {
	return artifactView{
		ID: f.GetId(), HouseID: f.GetHouseId(), Kind: f.GetKind(), Label: f.GetLabel(), ExternalID: f.GetExternalId(), MIMEType: f.GetMimeType(),
		ByteRef: f.GetByteRef(), HasBytes: f.GetHasBytes(), Size: f.GetSize(), AuthorID: f.GetAuthorAgentId(), ThreadID: f.GetThreadId(),
		RunID: f.GetRunId(), ResourceID: f.GetResourceId(), Metadata: jsonText(f.GetMetadata()), CreatedAt: f.GetCreatedAt().AsTime(),
	}
}
